#!lua flags=allow-oom
-- Purpose: marks a member of a group's roster as one that is to own nothing; what it owns it keeps.
-- KEYS[1] slot: slot 0's prefix, where rosters lie; what is touched begins with it.
-- ARGV[1] given (now), ARGV[2] name (group), ARGV[3] fresh (version, if there is a change),
--   ARGV[4] member.
-- Reply: 1 if it was marked, 0 if it is not there or was marked before. -2 if there is no such
--   group.
-- Cost: 4 commands, and 3 more to mark it; more where leases have passed, as heartbeat.
-- Promise: one atomic step; nothing changes hands.
local slot = KEYS[1]
local given, name, fresh, member = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
--@include time many roster members
local roster = open_roster(slot, name)
if not roster then
  return -2
end
local changed = drop_passed(roster, time_ms(given))
local since = redis.call('HGET', roster.joined, member)
local is_new = since and string.sub(since, 1, 1) ~= '-'
if is_new then
  redis.call('HSET', roster.joined, member, '-' .. since)
end
if changed or is_new then
  rename(roster, fresh)
end
return is_new and 1 or 0
