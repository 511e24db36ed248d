#!lua flags=allow-oom
-- Purpose: makes free slots a member's.
-- KEYS[1] slot: slot 0's prefix, where rosters lie; what is touched begins with it.
-- ARGV[1] given (now), ARGV[2] name (group), ARGV[3] fresh (version, if there is a change),
--   ARGV[4] member; then for each slot two: its number, epoch.
-- Reply: a letter for each: m the member's now under that epoch, o not. -2 if there is no such
--   group.
-- Cost: 4 commands if the member is not there, else 5, and 3 more to make slots its own; 1 more for
--   each further 1000 slots, and for each further 500 made its own; more where leases have passed,
--   as heartbeat.
-- Promise: one atomic step; a slot has one owner, and whose lease has passed gets none.
local slot = KEYS[1]
local given, name, fresh, member = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
--@include time many roster members
local roster = open_roster(slot, name)
if not roster then
  return -2
end
local now = time_ms(given)
local changed = drop_passed(roster, now)
local replies = {}
if redis.call('ZSCORE', roster.members, member) then
  local numbers, claimed = {}, {}
  for i = 5, #ARGV, 2 do
    numbers[#numbers + 1] = ARGV[i]
  end
  local owners = #numbers > 0 and read_many('HMGET', roster.owners, numbers) or {}
  for i, number in ipairs(numbers) do
    local epoch = ARGV[4 + 2 * i]
    local is_mine = not owners[i]
    if is_mine then
      claimed[#claimed + 1] = number
      claimed[#claimed + 1] = string.format('%.0f %s %s', now, epoch, member)
    else
      is_mine = string.match(owners[i], '^%d+ (.*)$') == epoch .. ' ' .. member
    end
    replies[i] = is_mine and 'm' or 'o'
  end
  call_many('HSET', roster.owners, claimed)
  changed = changed or #claimed > 0
else
  replies[1] = string.rep('o', (#ARGV - 4) / 2)
end
if changed then
  rename(roster, fresh)
end
return table.concat(replies)
