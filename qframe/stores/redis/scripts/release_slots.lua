#!lua flags=allow-oom
-- Purpose: frees slots of a member.
-- KEYS[1] slot: slot 0's prefix, where rosters lie; what is touched begins with it.
-- ARGV[1] given (now), ARGV[2] name (group), ARGV[3] fresh (version, if there is a change),
--   ARGV[4] member; then the slots.
-- Reply: how many. -2 if there is no such group.
-- Cost: 4 commands, and 3 more to free what is the member's; 1 more for each further 1000 slots,
--   and for each further 1000 freed; more where leases have passed, as heartbeat.
-- Promise: one atomic step; what is another's stays so.
local slot = KEYS[1]
local given, name, fresh, member = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
--@include time many roster members
local roster = open_roster(slot, name)
if not roster then
  return -2
end
local changed = drop_passed(roster, time_ms(given))
local numbers, freed = {}, {}
for i = 5, #ARGV do
  numbers[#numbers + 1] = ARGV[i]
end
local owners = #numbers > 0 and read_many('HMGET', roster.owners, numbers) or {}
for i, number in ipairs(numbers) do
  if owners[i] and string.match(owners[i], '^%d+ %S+ (.*)$') == member then
    freed[#freed + 1] = number
  end
end
call_many('HDEL', roster.owners, freed)
if changed or #freed > 0 then
  rename(roster, fresh)
end
return #freed
