#!lua flags=allow-oom
-- Purpose: forgets a group of a slot, and what stands for it in steps of 500 subjects.
-- KEYS[1] slot: the slot's prefix; what is touched begins with it.
-- ARGV[1] kind, ARGV[2] name (group), ARGV[3] anyway (1 if also where the slot is closed, else 0).
-- Reply: [1 if it collected till now, else 0; 1 if there is more to remove, else 0].
-- Cost: 11 commands, 12 of a stream; in ordered topics, and of a group that has kept order, 1 more,
--   and 2 for each subject of a step; 1 more in slot 0 for each space with documents.
-- Promise: the group is gone with the first step; what is left is seen by nobody.
local slot = KEYS[1]
local kind, name, anyway = ARGV[1], ARGV[2], ARGV[3]
--@include closed head documents drop
if anyway ~= '1' and is_closed(slot) then
  return refusal()
end
return { drop(slot, name, kind) }
