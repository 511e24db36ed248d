#!lua flags=allow-oom
-- Purpose: gives back, uncounted, what was handed out under a receipt whose reply was lost.
-- KEYS[1] slot: the slot's prefix; what is touched begins with it.
-- ARGV[1] given (now), ARGV[2] kind, ARGV[3] name (group), ARGV[4] epoch, ARGV[5] receipt,
--   ARGV[6] position ('' for none).
-- Reply: how many. -2 if there is no such group.
-- Cost: 4 commands, 2 more on a stream, and 7 or 8 for each subject that comes back.
-- Promise: one atomic step; under another epoch nothing changes. A stream's read position goes back
--   to where the lost pull began; where that pull has parked something, the rest of what it has
--   read leaves the line instead, at 4 commands or more for each.
local slot = KEYS[1]
local given, kind, name, epoch = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local receipt, position = ARGV[5], tonumber(ARGV[6])
--@include time many bell head places ranges
local group, owner = load_group(slot, name, kind)
if owner ~= epoch then
  return owner and 0 or -2
end
local now, count_back = time_ms(given), 0
local doing = redis.call('ZRANGE', group.doing, 0, -1)
for i, state in ipairs(#doing > 0 and read_many('HMGET', group.tries, doing) or {}) do
  local _, _, _, _, size = struct.unpack(STATE, state)
  if string.sub(state, STATE_SIZE + 1, STATE_SIZE + size) == receipt then
    local head = load_head(group, doing[i])
    head.tries = head.tries - 1
    if kind == 'stream' then
      head.due = 0
    end
    requeue(group, doing[i], head, now)
    count_back = count_back + 1
  end
end
if kind == 'stream' then
  local cursor = redis.call('HMGET', group.cursor, 'floor', 'read', 'receipt', 'settled')
  local floor, read = tonumber(cursor[1]), tonumber(cursor[2])
  local settled = load_ranges(cursor[4])
  local start = position and math.max(position, floor) or read
  -- After a seek a position says nothing, but the lost pull has begun the window.
  if cursor[3] == receipt then
    start = floor
  end
  if start < read and (settled[#settled] or 0) <= start then
    redis.call('HSET', group.cursor, 'read', string.format('%.0f', start))
    if start == floor then
      redis.call('HSET', group.cursor, 'receipt', '', 'lease', 0)
    end
    count_back = count_back + read - start
  elseif start < read then -- the lost pull has parked some of that, and so the rest leaves the line
    --@include text log parking
    each_message(slot .. 'log', start, read, function(offset, envelope, published)
      if not is_settled(settled, offset) then
        park(group, leaving(offset, envelope, published), now)
        count_back = count_back + 1
      end
    end)
    floor, settled = raise_floor(floor, add_range(settled, start, read))
    redis.call('HSET', group.cursor, 'floor', string.format('%.0f', floor),
      'settled', pack_ranges(settled))
  end
end
ring(slot) -- also so that no pull stands there
return count_back
