#!lua flags=allow-oom
-- Purpose: keeps what a worker says of its consumer, and forgets old words of others.
-- KEYS[1] slot: slot 0's prefix, where reports lie; what is touched begins with it.
-- ARGV[1] given (now), ARGV[2] name (group), ARGV[3] worker, ARGV[4] text, ARGV[5] kept (for ms).
-- Reply: 0. -2 if there is no such group.
-- Cost: 3 commands; 2 more for a worker's first word.
-- Promise: one atomic step.
local slot = KEYS[1]
local given, name, worker, text, kept = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
--@include time
if redis.call('HEXISTS', slot .. 'groups', name) == 0 then
  return -2
end
local now, reports = time_ms(given), slot .. 'g:' .. name .. ':reports'
if redis.call('HSET', reports, worker, string.format('%.0f', now) .. ' ' .. text) == 1 then
  local all = redis.call('HGETALL', reports)
  for i = 1, #all, 2 do
    local at = tonumber(string.match(all[i + 1], '^%d+'))
    if at and at <= now - kept then
      redis.call('HDEL', reports, all[i])
    end
  end
end
return 0
