#!lua flags=allow-oom
-- Purpose: removes dead messages of a slot for good, counted as cancelled.
-- KEYS[1] slot: the slot's prefix; what is touched begins with it.
-- ARGV[1] name (group); then the members of those in `dead`.
-- Reply: how many. -2 if there is no such group.
-- Cost: 3 commands, and 4 or 5 for each 500.
-- Promise: one atomic step; one that is not dead any more is left alone.
local slot = KEYS[1]
local name = ARGV[1]
--@include closed head places text dead
local group = group_of(slot, name, '')
if redis.call('EXISTS', group.cursor) == 0 then
  return -2
end
if is_closed(slot) then
  return refusal()
end
local members = {}
for i = 2, #ARGV do
  members[i - 1] = ARGV[i]
end
local done = remove_dead_letters(group, members)
count(group, 'cancelled', done)
return done
