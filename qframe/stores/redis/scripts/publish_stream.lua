#!lua
-- Purpose: appends messages to a stream's slot, as one entry of its log, or keeps them till due.
-- KEYS[1] slot: the slot's prefix; what is touched begins with it.
-- ARGV[1] given (now), ARGV[2] declared, ARGV[3] window, ARGV[4] limit, ARGV[5] mark; then for each
--   item three: how it comes, how many messages it has, their envelopes one after the other.
--   `declared` is the topic's kind, and with how many slots it was declared. `how` is empty for
--   messages that are due now under the mark of ARGV[5]; else msgpack of [mark, other mark, at,
--   delay, id, series, place]: the mark of a series, and its time. `window` is for how many ms
--   marks are remembered; `limit` is 0 or how many unsettled messages the slot may hold, and then
--   each item has one message.
-- Reply: a letter for each item: s stored, d duplicate, f full. The error CLOSED if the slot is
--   being split, or was, or the topic was declared anew otherwise: none of it is stored.
-- Cost: 7 commands for all that is due now; 2 for each item that is delayed; with a limit 3, and 2
--   for each group; 3 for each pull that stands there and is answered; 2 to ring.
-- Promise: one atomic step; an item whose mark is remembered adds nothing.
local slot = KEYS[1]
local given, declared, window = ARGV[1], ARGV[2], tonumber(ARGV[3])
local limit, mark = tonumber(ARGV[4]), ARGV[5]
--@include time bell closed
if is_closed(slot, declared) then
  return refusal()
end
local now = time_ms(given)
for i = 7, #ARGV, 3 do
  local size = tonumber(ARGV[i])
  if not size or size < 1 or size % 1 > 0 or size > #ARGV[i + 1] then
    return redis.error_reply('ERR ' .. ARGV[i] .. ' messages in ' .. #ARGV[i + 1] .. ' bytes')
  end
end
if #ARGV == 8 and ARGV[6] == '' and limit == 0 then
  -- One batch that is due now, as nearly always.
  local known = redis.call('ZSCORE', slot .. 'ids', mark)
  if known and tonumber(known) > now then
    return 'd'
  end
  local asleep = redis.call('GET', slot .. 'asleep')
  --@may XADD ZADD
  if asleep then
    --@may DEL PUBLISH HMGET HSET
  end
  local size = tonumber(ARGV[7])
  local first = redis.call('INCRBY', slot .. 'head', size) - size
  redis.call('XADD', slot .. 'log', string.format('%.0f-%d', first, size),
    'b', ARGV[8], 't', string.format('%.0f', now))
  redis.call('ZADD', slot .. 'ids', string.format('%.0f', now + window), mark)
  if asleep and (size > 1 or asleep == '1') then
    ring(slot)
  elseif asleep then
    --@include answer
    answer(slot, asleep, now, ARGV[8], function(pull)
      local key = slot .. 'g:' .. pull.name .. ':cursor'
      local cursor = redis.call('HMGET', key,
        'epoch', 'floor', 'read', 'receipt', 'lease', 'max_parked')
      local read = tonumber(cursor[3])
      local receipt = string.format('%.0f-', first) .. pull.receipt
      if cursor[1] ~= pull.epoch or read ~= first or cursor[6] then
        return false
      end
      if tonumber(cursor[2]) < read then
        if tonumber(cursor[5]) <= now then
          return false
        end
        receipt = cursor[4]
      end
      if not send(slot, pull, first, now, receipt, '', ARGV[8]) then
        return false
      end
      redis.call('HSET', key, 'read', string.format('%.0f', first + 1), 'receipt', receipt,
        'lease', pull.lease)
      return true
    end)
  end
  return 's'
end

--@may
--@include many marks
local function unsettled()
  local head = tonumber(redis.call('GET', slot .. 'head') or 0)
  local most
  for _, name in ipairs(redis.call('HKEYS', slot .. 'groups')) do
    local at = slot .. 'g:' .. name .. ':'
    local base, settled, cancelled = unpack(
      redis.call('HMGET', at .. 'cursor', 'base', 'acked', 'cancelled'))
    local open = head - base - (settled or 0) - (cancelled or 0) - redis.call('ZCARD', at .. 'dead')
    most = math.max(most or 0, open)
  end
  most = most or head - tonumber(redis.call('GET', slot .. 'first') or 0)
  return most + redis.call('ZCARD', slot .. 'later')
end

local marks, items = { mark ~= '' and mark or nil }, {}
for i = 6, #ARGV, 3 do
  local item = { mark = mark, size = tonumber(ARGV[i + 1]), envelopes = ARGV[i + 2] }
  if ARGV[i] ~= '' then
    local own, other, at, delay, id, series, place = unpack(cmsgpack.unpack(ARGV[i]))
    item.mark, item.other, item.id = own, other, id
    item.series, item.place = series, place
    item.due = at or (delay and now + delay)
    marks[#marks + 1] = own
    if other then
      marks[#marks + 1] = other
    end
    if series then
      marks[#marks + 1] = series
    end
  end
  items[#items + 1] = item
end

local known = known_marks(slot, marks, now)
local room = limit > 0 and limit - unsettled() or nil
local outcomes, new, parts, size, delayed = {}, {}, {}, 0, 0
for i, item in ipairs(items) do
  if known[item.mark] or (item.other and known[item.other]) or not has_place(known, item) then
    outcomes[i] = 'd'
  elseif room and room < item.size then
    outcomes[i], room = 'f', 0
  else
    outcomes[i], new[item.mark] = 's', true
    if item.series then
      known[item.series], new[item.series] = item.place, item.place
    end
    room = room and room - item.size
    if item.due and item.due > now then
      local ticket = redis.call('INCR', slot .. 'ticket')
      redis.call('ZADD', slot .. 'later', string.format('%.0f', item.due),
        item.id .. string.char(0) .. struct.pack('>I8I8', ticket, now) .. item.envelopes)
      delayed = delayed + 1
    else
      parts[#parts + 1] = item.envelopes
      size = size + item.size
    end
  end
end
if size > 0 then
  local first = redis.call('INCRBY', slot .. 'head', size) - size
  redis.call('XADD', slot .. 'log', string.format('%.0f-%d', first, size),
    'b', table.concat(parts), 't', string.format('%.0f', now))
end
if next(new) then
  remember(slot, new, now + window)
end
if size + delayed > 0 then
  ring(slot)
end
return table.concat(outcomes)
