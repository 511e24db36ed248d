#!lua flags=no-writes
-- Purpose: tells members of a group and the owners of slots.
-- KEYS[1] slot: slot 0's prefix, where rosters lie; what is read begins with it.
-- ARGV[1] given (now), ARGV[2] name (group), ARGV[3] seen ('' or the version that is known).
-- Reply: [version, 0 if a lease has passed; of those whose lease has not passed member, end of
--   lease; of all that are kept member, since when ('-' before it if it retires); slot, '<since>
--   <epoch> <member>'], each flat.
--   0 if the version is the one that was seen, and no lease has passed. -2 if there is no such
--   group.
-- Cost: 3 commands where that was seen; else 5, 6 if a lease has passed since; 1 more while nobody
--   has ever attended.
-- Promise: one atomic step, which changes nothing.
local slot = KEYS[1]
local given, name, seen = ARGV[1], ARGV[2], ARGV[3]
--@include time roster
local roster = open_roster(slot, name)
if not roster then
  return -2
end
local now = string.format('%.0f', time_ms(given))
if roster.version == seen
  and #redis.call('ZRANGEBYSCORE', roster.members, '-inf', now, 'LIMIT', 0, 1) == 0 then
  return 0
end
local living = redis.call('ZRANGEBYSCORE', roster.members, '(' .. now, '+inf', 'WITHSCORES')
local joined = redis.call('HGETALL', roster.joined)
local version = #living == #joined and roster.version or '0'
return { version, living, joined, redis.call('HGETALL', roster.owners) }
