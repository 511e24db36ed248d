#!lua flags=allow-oom
-- Purpose: hands out what is due of a stream's slot: first what left the line, then the line.
-- KEYS[1] slot: the slot's prefix; what is touched begins with it.
-- ARGV[1] now, ARGV[2] group, ARGV[3] epoch, ARGV[4] receipt, ARGV[5] limit, ARGV[6] lease (ms),
--   ARGV[7] max attempts, ARGV[8] position ('' for none).
-- Reply: [0, next due (ms from now; -1 never), dead, lost, items, receipt of the window, start, stop,
--   entries]; items as those of pull; entries of the log, of which [start, stop) are handed out.
--   [-1] if the epoch is another now, [-2] if there is no such group.
-- Cost: 6 commands; 7 more where something has left the line, 4 for each that joins it.
-- Promise: one atomic step; one read of the log and one write of the cursor, however many messages.
local slot = KEYS[1]
local given, name, epoch, receipt = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local limit, lease, max_attempts, position =
  tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
--@include time many head log window bring_in hand_out
local group = group_of(slot, name, 'stream')
local log = slot .. 'log'
local cursor = redis.call('HMGET', group.cursor,
  'epoch', 'floor', 'read', 'entry', 'receipt', 'lease', 'settled')
if cursor[1] ~= epoch then
  return { cursor[1] and -1 or -2 }
end
local now = time_ms(given)
local floor, read, entry = tonumber(cursor[2]), tonumber(cursor[3]), tonumber(cursor[4])
local window, leased = cursor[5], tonumber(cursor[6])

-- What was delayed and is due joins the log.
local function join()
  local text = string.format('%.0f', now)
  local due = redis.call('ZRANGEBYSCORE', slot .. 'later', '-inf', text, 'LIMIT', 0, 500)
  for _, member in ipairs(due) do
    local at = string.find(member, EMPTY, 1, true)
    local _, published = struct.unpack('>I8I8', member, at + 1)
    local first = redis.call('INCR', slot .. 'head') - 1
    redis.call('XADD', log, string.format('%.0f-1', first),
      'b', string.sub(member, at + 17), 't', text, 'p', string.format('%.0f', published))
  end
  redis.call('ZREM', slot .. 'later', unpack(due))
end

-- Reads entries of the log until they hold `most` messages from `start` on; answers them and where
-- they end, and where the entry begins that holds the end.
local function read_on(start, begin, most)
  local entries, stop, last = {}, start, begin
  local from, ask = begin, 4
  while stop - start < most do
    local found = redis.call('XRANGE', log, string.format('%.0f-0', from), '+', 'COUNT', ask)
    for _, each in ipairs(found) do
      local first, size = first_and_count(each[1])
      entries[#entries + 1] = each
      stop, last, from = first + size, first, first + size
      if stop - start >= most then
        break
      end
    end
    if #found < ask then
      break
    end
    ask = math.min(500, math.ceil((most - (stop - start)) * #entries / (stop - start)) + 1)
  end
  if stop - start > most then
    stop = start + most
  else
    last = stop
  end
  return entries, stop, last
end

local later = first_of(slot .. 'later')
if later and later <= now then
  join()
  later = first_of(slot .. 'later')
end
local lost, items, handed, buried = 0, {}, 0, 0
if floor < read and leased <= now then
  lost = lose_window(group, floor, read, load_ranges(cursor[7]), now)
  floor, window = read, ''
end
local has_left = redis.call('EXISTS', group.body) == 1
if has_left then
  lost = lost + take_back(group, now)
  promote(group, now)
  items, handed, buried = hand_out(group, {
    now = now, receipt = receipt, limit = limit, lease_until = now + lease,
    max_attempts = max_attempts, run = 1,
  })
end
local start, stop, entries = read, read, {}
if handed < limit then
  local begin = entry
  if position and math.max(position, floor) < read then
    start = math.max(position, floor)
    begin = entry_start(log, start)
  end
  local last
  entries, stop, last = read_on(start, begin, limit - handed)
  if stop > start then
    if floor == read then
      window = receipt
    end
    if stop > read then
      read, entry = stop, last
    end
    leased = now + lease
    redis.call('HSET', group.cursor, 'read', string.format('%.0f', read),
      'entry', string.format('%.0f', entry), 'receipt', window,
      'lease', string.format('%.0f', leased))
    handed = handed + stop - start
  end
end
local due = 0
if handed < limit then
  due = next_due(now, {
    later = later, window = floor < read and leased or nil,
    waiting = has_left and first_of(group.waiting) or nil,
    retry = has_left and first_of(group.retry) or nil,
    doing = has_left and first_of(group.doing) or nil,
  })
end
if handed == 0 and due ~= 0 then
  redis.call('SET', slot .. 'asleep', 1)
end
return { 0, due, buried, lost, items, window, start, stop, entries }
