#!lua flags=allow-oom
-- Purpose: makes the first message of a subject of a group due now.
-- KEYS[1] slot: the slot's prefix; what is touched begins with it.
-- ARGV[1] given (now), ARGV[2] kind, ARGV[3] name (group), ARGV[4] subject, ARGV[5] seq.
-- Reply: done, absent (it is not there any more) or doing (a worker has it, and nothing changed).
--   -2 if there is no such group.
-- Cost: 4 commands, and 4 to 7 if it is not due yet.
-- Promise: one atomic step; only the message of that number is changed.
local slot = KEYS[1]
local given, kind, name, subject, seq = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
--@include time bell closed head places
local group, epoch = load_group(slot, name, kind)
if not epoch then
  return -2
end
local head = load_head(group, subject)
if not head or head.seq ~= seq then
  return 'absent'
end
if is_closed(slot) then
  return refusal()
end
if head.receipt ~= '' then
  return 'doing'
end
local now = time_ms(given)
if head.due > now then
  take_out(group, subject, head)
  head.due = now
  redis.call('HSET', group.body, subject, pack_head(head))
  place(group, subject, head, now)
  ring(slot)
end
return 'done'
