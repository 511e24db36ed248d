#!lua flags=allow-oom
-- Purpose: sets what is tuned of a group, by name, or takes it back.
-- KEYS[1] slot: slot 0's prefix, where a group's tunings lie; what is touched begins with it.
-- ARGV[1] name (group); then for each value three: its name, 1 to set it, 0 to take it back; text.
-- Reply: 0. -2 if there is no such group.
-- Cost: 1 command, and 1 for each value.
-- Promise: one atomic step; what is not named stays.
local slot = KEYS[1]
local name = ARGV[1]
if redis.call('HEXISTS', slot .. 'groups', name) == 0 then
  return -2
end
local tuned = slot .. 'g:' .. name .. ':tuned'
for i = 2, #ARGV, 3 do
  if ARGV[i + 1] == '1' then
    redis.call('HSET', tuned, ARGV[i], ARGV[i + 2])
  else
    redis.call('HDEL', tuned, ARGV[i])
  end
end
return 0
