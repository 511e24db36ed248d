#!lua flags=allow-oom
-- Purpose: takes a subject with all its messages out, for every group.
-- KEYS[1] slot: the slot's prefix; what is touched begins with it.
-- ARGV[1] kind, ARGV[2] subject.
-- Reply: done, absent (no group has it) or doing (a group has it in hand, and nothing changed).
-- Cost: 3 commands, and 7 to 11 for each group that has it.
-- Promise: one atomic step over all groups of the slot; each message counts as cancelled.
local slot = KEYS[1]
local kind, subject = ARGV[1], ARGV[2]
--@include bell head places timer
return change_heads(slot, kind, subject, function(group, head)
  take_out(group, subject, head)
  count(group, 'cancelled', 1 + length_behind(group, subject))
  redis.call('HDEL', group.body, subject)
  redis.call('HDEL', group.tries, subject)
  redis.call('DEL', behind_of(group, subject))
end)
