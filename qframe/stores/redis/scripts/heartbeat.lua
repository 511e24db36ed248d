#!lua flags=allow-oom
-- Purpose: makes a member's lease in a group's roster begin anew, and joins it if it is not there.
-- KEYS[1] slot: slot 0's prefix, where rosters lie; what is touched begins with it.
-- ARGV[1] given (now), ARGV[2] name (group), ARGV[3] fresh (version, if there is a change),
--   ARGV[4] member, ARGV[5] lease (ms).
-- Reply: the roster's version, as text. -2 if there is no such group.
-- Cost: 4 commands; 3 more to join, and 1 for the first that does; 3 more where leases have passed,
--   and 1 where those owned slots, 2 if nothing else has changed.
-- Promise: one atomic step; whose lease has passed owns nothing, also if it comes back.
local slot = KEYS[1]
local given, name, fresh, member, lease = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
--@include time many roster members
local roster = open_roster(slot, name)
if not roster then
  return -2
end
local now = time_ms(given)
local changed = drop_passed(roster, now)
if redis.call('ZADD', roster.members, string.format('%.0f', now + lease), member) == 1 then
  redis.call('HSET', roster.joined, member, string.format('%.0f', now))
  changed = true
end
if changed then
  rename(roster, fresh)
end
return changed and fresh or roster.version
