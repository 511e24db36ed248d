#!lua flags=allow-oom
-- Purpose: ends deliveries of a stream's line otherwise than by an ack: retry, release, dead.
-- KEYS[1] slot: the slot's prefix; what is touched begins with it.
-- ARGV[1] given (now), ARGV[2] name (group), ARGV[3] epoch, ARGV[4] receipt; then for each
--   settlement three: how it ends, offset, attempt. `how` is msgpack of [verdict, delay, at, error,
--   traceback]. At last, where a history is kept, msgpack of a note for each.
-- Reply: a letter for each: s settled, t stale (changed nothing). -2 if there is no such group.
-- Cost: 4 commands, 1 for each entry of the log that has one, and 2 to 4 for each settlement; 3
--   more for a history. Where order is kept, some more for each.
-- Promise: one atomic step; nothing ends without epoch and receipt in force.
local slot = KEYS[1]
local given, name, epoch, receipt = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
--@include time many bell head places text dead log messages ranges parking
local cursor = redis.call('HMGET', slot .. 'g:' .. name .. ':cursor',
  'epoch', 'floor', 'read', 'receipt', 'settled', 'max_parked')
if not cursor[1] then
  return -2
end
local total = math.floor((#ARGV - 4) / 3)
if cursor[1] ~= epoch or epoch == '0000000000000000' or cursor[4] ~= receipt or receipt == '' then
  return string.rep('t', total)
end
local group = group_of(slot, name, 'stream', cursor[6])
local floor, read, ranges = tonumber(cursor[2]), tonumber(cursor[3]), load_ranges(cursor[5])
local replies, now, offsets, ended = {}, time_ms(given), {}, {}
for number = 1, total do
  local offset = tonumber(ARGV[3 + 3 * number])
  if offset >= floor and offset < read then
    offsets[#offsets + 1] = offset
  end
end
local messages = messages_at(slot .. 'log', offsets)
for number = 1, total do
  local offset, attempt = tonumber(ARGV[3 + 3 * number]), tonumber(ARGV[4 + 3 * number])
  replies[number] = ended[offset] and 't' or held(floor, read, ranges, offset, offset + 1)
  if replies[number] == 's' then
    ended[offset] = true
    local verdict, delay, at, error, traceback = unpack(cmsgpack.unpack(ARGV[2 + 3 * number]))
    if messages[offset] then
      local envelope, published = unpack(messages[offset])
      if verdict == 'dead' then
        local gone = { seq = offset, priority = 0, tries = attempt, published = published,
                       envelope = envelope }
        add_dead_letter(group, '', gone, now, error, traceback)
      else
        local one = leaving(offset, envelope, published)
        if verdict == 'retry' then
          one.due, one.tries, one.error = at or now + delay, 1, error or ''
        end
        park(group, one, now)
      end
    end
  end
end
local added = {}
for _, offset in ipairs(offsets) do
  if ended[offset] then
    ended[offset], added[#added + 1], added[#added + 2] = nil, offset, offset + 1
  end
end
floor, ranges = raise_floor(floor, merged(ranges, added))
redis.call('HSET', group.cursor, 'floor', string.format('%.0f', floor),
  'settled', pack_ranges(ranges))
ring(slot)
if #ARGV > 4 + 3 * total then
  --@include history
  remember_settled(group.at, cmsgpack.unpack(ARGV[#ARGV]), replies, now)
end
return table.concat(replies)
