#!lua flags=allow-oom
-- Purpose: acknowledges deliveries of a stream's line.
-- KEYS[1] slot: the slot's prefix; what is touched begins with it.
-- ARGV[1] name (group), ARGV[2] epoch, ARGV[3] receipt; then for each range of offsets two: start,
--   end. At last, where a history is kept, msgpack of [given (now), a note for each].
-- Reply: a letter for each range: s settled, t stale (changed nothing), or p where a part of it was
--   stale: then nothing of it changed. -2 if there is no such group.
-- Cost: 2 commands for any number of ranges; 3 more for a history, and 1 for the time.
-- Promise: one atomic step; one write of the cursor; nothing ends without epoch and receipt in
--   force.
local slot = KEYS[1]
local name, epoch, receipt = ARGV[1], ARGV[2], ARGV[3]
local cursor_key = slot .. 'g:' .. name .. ':cursor'
local cursor = redis.call('HMGET', cursor_key,
  'epoch', 'floor', 'read', 'receipt', 'settled', 'acked')
if not cursor[1] then
  return -2
end
local total = math.floor((#ARGV - 3) / 2)
if cursor[1] ~= epoch or epoch == '0000000000000000' or cursor[4] ~= receipt or receipt == '' then
  return string.rep('t', total)
end
local floor, read, acked = tonumber(cursor[2]), tonumber(cursor[3]), tonumber(cursor[6] or 0)
if #ARGV == 5 and cursor[5] == '' then
  local from, to = tonumber(ARGV[4]), tonumber(ARGV[5])
  if from == floor and from < to and to <= read then
    -- All that is before it is settled and nothing behind it, as nearly always.
    redis.call('HSET', cursor_key, 'floor', string.format('%.0f', to),
      'acked', string.format('%.0f', acked + to - from))
    return 's'
  end
end

--@include ranges
local replies, ranges, added = {}, load_ranges(cursor[5]), {}
for number = 1, total do
  local from, to = tonumber(ARGV[2 + 2 * number]), tonumber(ARGV[3 + 2 * number])
  if from < (added[#added] or 0) then -- not in their order: it may be about what was added
    ranges, added = merged(ranges, added), {}
  end
  local reply = held(floor, read, ranges, from, to)
  if reply == 's' then
    acked = acked + to - from
    added[#added + 1], added[#added + 2] = from, to
  end
  replies[number] = reply
end
floor, ranges = raise_floor(floor, merged(ranges, added))
redis.call('HSET', cursor_key, 'floor', string.format('%.0f', floor),
  'settled', pack_ranges(ranges), 'acked', string.format('%.0f', acked))
if #ARGV > 3 + 2 * total then
  --@include time many history
  local kept = cmsgpack.unpack(ARGV[#ARGV])
  remember_settled(slot .. 'g:' .. name .. ':', kept[2], replies, time_ms(kept[1]))
end
return table.concat(replies)
