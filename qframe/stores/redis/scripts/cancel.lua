#!lua flags=allow-oom
-- Purpose: takes a subject with all its messages out, for every group.
-- KEYS[1] slot: the slot's prefix; what is touched begins with it.
-- ARGV[1] given (now), ARGV[2] kind, ARGV[3] subject, ARGV[4] seen (only if a group has it due
--   then; '': always), ARGV[5] lines (of the entry in the history; '' where none is kept).
-- Reply: done, absent (no group has it) or doing (a group has it in hand, and nothing changed).
-- Cost: 4 commands, and 7 to 14 for each group that has it, 3 of them for a history.
-- Promise: one atomic step over all groups of the slot; each message counts as cancelled.
local slot = KEYS[1]
local given, kind, subject, seen, lines = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
--@include time many bell closed head text places history timer
if is_closed(slot) then
  return refusal()
end
return change_heads(slot, kind, subject, seen, function(group, head)
  take_out(group, subject, head)
  count(group, 'cancelled', 1 + length_behind(group, subject))
  redis.call('HDEL', group.body, subject)
  redis.call('HDEL', group.tries, subject)
  redis.call('DEL', behind_of(group, subject))
  if lines ~= '' then
    remember_act(group, subject, head, 7, lines, time_ms(given))
  end
end)
