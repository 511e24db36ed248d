#!lua flags=allow-oom
-- Purpose: makes a subject due at another moment, for every group.
-- KEYS[1] slot: the slot's prefix; what is touched begins with it.
-- ARGV[1] given (now), ARGV[2] kind, ARGV[3] subject, ARGV[4] due (ms since 1970).
-- Reply: done, absent (no group has it) or doing (a group has it in hand, and nothing changed).
-- Cost: 4 commands, and 5 to 11 for each group that has it.
-- Promise: one atomic step over all groups of the slot.
local slot = KEYS[1]
local given, kind, subject, due = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
--@include time bell head places timer
local now = time_ms(given)
return change_heads(slot, kind, subject, function(group, head)
  take_out(group, subject, head)
  head.due = due
  redis.call('HSET', group.body, subject, pack_head(head))
  place(group, subject, head, now)
end)
