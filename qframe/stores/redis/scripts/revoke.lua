#!lua flags=allow-oom
-- Purpose: gives back, uncounted, what was handed out under a receipt whose reply was lost.
-- KEYS[1] slot: the slot's prefix; what is touched begins with it.
-- ARGV[1] given (now), ARGV[2] kind, ARGV[3] name (group), ARGV[4] epoch, ARGV[5] receipt.
-- Reply: how many. -2 if there is no such group.
-- Cost: 4 commands, and 7 or 8 for each that comes back.
-- Promise: one atomic step; under another epoch nothing changes.
local slot = KEYS[1]
local given, kind, name, epoch, receipt = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
--@include time many bell head places
local group = group_of(slot, name, kind)
local owner = redis.call('HGET', group.cursor, 'epoch')
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
if count_back > 0 then
  ring(slot)
end
return count_back
