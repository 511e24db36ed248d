#!lua flags=allow-oom
-- Purpose: gives up the first message of a subject of a group; what is behind it comes next.
-- KEYS[1] slot: the slot's prefix; what is touched begins with it.
-- ARGV[1] given (now), ARGV[2] kind, ARGV[3] name (group), ARGV[4] subject, ARGV[5] seq,
--   ARGV[6] error, ARGV[7] force (1 for one that a worker has, too).
-- Reply: done, absent (it is not there any more) or doing (a worker has it, and nothing changed).
--   -2 if there is no such group.
-- Cost: 4 commands, and 8 to 16 if it is given up.
-- Promise: one atomic step; a worker that has it cannot settle it any more.
local slot = KEYS[1]
local given, kind, name, subject, seq = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local error, force = ARGV[6], ARGV[7]
--@include time bell closed head places text dead
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
if head.receipt == '' then
  take_out(group, subject, head)
elseif force ~= '1' then
  return 'doing'
end
local now = time_ms(given)
add_dead_letter(group, subject, head, now, error, head.error ~= '' and head.error)
advance(group, subject, head, now, 0)
ring(slot)
return 'done'
