#!lua flags=allow-oom
-- Purpose: draws tokens from a group's bucket, as many as there are.
-- KEYS[1] slot: slot 0's prefix, where a group's bucket lies; what is touched begins with it.
-- ARGV[1] given (now), ARGV[2] name (group), ARGV[3] tokens, ARGV[4] rate, ARGV[5] per (ms),
--   ARGV[6] burst.
-- Reply: [how many are granted; 0 if those are all, else how many ms until one more is there].
--   [-2] if there is no such group.
-- Cost: 3 commands; 2 where nothing is granted; 1 more the first time.
-- Promise: one atomic step; over any time t no more than burst + t * rate / per are granted.
local slot = KEYS[1]
local given, name, tokens, rate = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local per, burst = tonumber(ARGV[5]), tonumber(ARGV[6])
--@include time
-- A token has a million parts. Up to a day no product is larger than 2^53, so all are exact; beyond
-- that one may be off by a part.
local PARTS = 1000000
local bucket = slot .. 'g:' .. name .. ':bucket'
local before = redis.call('HMGET', bucket, 'level', 'at')
if not before[1] and redis.call('HEXISTS', slot .. 'groups', name) == 0 then
  return { -2 }
end
local now, full = time_ms(given), burst * PARTS
local level, at = tonumber(before[1] or full), tonumber(before[2] or now)
local passed, earned = now - at, 0
if passed * rate >= burst * per then
  earned = full
elseif passed > 0 then
  local rest = math.fmod(passed * rate, per)
  earned = (passed * rate - rest) / per * PARTS + math.floor(rest * PARTS / per)
end
local has = math.min(full, level + earned)
local granted = math.min(tokens, math.floor(has / PARTS))
if granted > 0 or passed < 0 then
  level, passed = has - granted * PARTS, 0
  redis.call('HSET', bucket, 'level', string.format('%.0f', level),
    'at', string.format('%.0f', now))
end
if granted == tokens then
  return { granted, 0 }
end
return { granted, math.ceil((PARTS - level) * per / (rate * PARTS)) - passed }
