#!lua flags=allow-oom
-- Purpose: takes a member out of a group's roster, with all that it owns.
-- KEYS[1] slot: slot 0's prefix, where rosters lie; what is touched begins with it.
-- ARGV[1] given (now), ARGV[2] name (group), ARGV[3] fresh (version, if there is a change),
--   ARGV[4] member.
-- Reply: 1 if it was there, else 0. -2 if there is no such group.
-- Cost: 4 commands if it is not there, else 9, and 1 for each 1000 slots that it owned; more where
--   leases have passed, as heartbeat.
-- Promise: one atomic step; what it owned is free.
local slot = KEYS[1]
local given, name, fresh, member = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
--@include time many roster members
local roster = open_roster(slot, name)
if not roster then
  return -2
end
local changed = drop_passed(roster, time_ms(given))
local is_there = redis.call('ZSCORE', roster.members, member)
if is_there then
  take_out(roster, { member })
end
if changed or is_there then
  rename(roster, fresh)
end
return is_there and 1 or 0
