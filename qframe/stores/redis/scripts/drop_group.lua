#!lua flags=allow-oom
-- Purpose: forgets a group of a slot, and what stands for it in steps of 500 subjects.
-- KEYS[1] slot: the slot's prefix; what is touched begins with it.
-- ARGV[1] kind, ARGV[2] name (group).
-- Reply: [1 if it collected till now, else 0; 1 if there is more to remove, else 0].
-- Cost: 5 commands; in ordered topics 6, and 2 for each subject of a step; 1 more in slot 0 if
--   anybody has attended.
-- Promise: the group is gone with the first step; what is left is seen by nobody.
local slot = KEYS[1]
local kind, name = ARGV[1], ARGV[2]
--@include head roster
local group = group_of(slot, name, kind)
local was = redis.call('HDEL', slot .. 'groups', name)
if redis.call('EXISTS', slot .. 'groups') == 0 then
  redis.call('DEL', slot .. 'claimed')
end
redis.call('UNLINK', group.cursor, group.waiting, group.retry, group.todo, group.doing, group.tries,
  group.following, group.dead, group.graves)
local roster = roster_of(slot, name)
if redis.call('UNLINK', roster.key, roster.members, roster.joined, roster.owners) > 0 then
  ring_roster(roster)
end
if kind == 'ordered' then
  local subjects = redis.call('HSCAN', group.body, 0, 'COUNT', 500)[2]
  for i = 1, #subjects, 2 do
    redis.call('UNLINK', behind_of(group, subjects[i]))
    redis.call('HDEL', group.body, subjects[i])
  end
  return { was, redis.call('EXISTS', group.body) }
end
redis.call('UNLINK', group.body)
return { was, 0 }
