#!lua
-- Purpose: makes a subject due at another moment, or gives it another body, or both, for every
--   group.
-- KEYS[1] slot: the slot's prefix; what is touched begins with it.
-- ARGV[1] given (now), ARGV[2] kind, ARGV[3] subject, ARGV[4] due (ms since 1970; '': it stays),
--   ARGV[5] body, as msgpack bytes ('': it and the headers stay), ARGV[6] headers, as msgpack,
--   ARGV[7] seen (only if a group has it due then; '': always), ARGV[8] lines (of the entry in the
--   history; '' where none is kept).
-- Reply: done, absent (no group has it) or doing (a group has it in hand, and nothing changed).
-- Cost: 4 commands, and 3 to 11 for each group that has it, 3 of them for a history; 1 more for
--   the time.
-- Promise: one atomic step over all groups of the slot.
local slot = KEYS[1]
local given, kind, subject, due = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local body, headers, seen, lines = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
--@include time many bell closed head text places log history timer
local now = (due or lines ~= '') and time_ms(given)

-- The envelope is [id, key, headers, body]: id and key stay. What is none dies of itself.
local function rewritten(envelope)
  local begins = ({ [0x94] = 2, [0xdc] = 4, [0xdd] = 6 })[string.byte(envelope)]
  local after_id = begins and skip(envelope, begins)
  local after_key = after_id and skip(envelope, after_id)
  return after_key and string.sub(envelope, 1, after_key - 1) .. headers .. body or envelope
end

if is_closed(slot) then
  return refusal()
end
return change_heads(slot, kind, subject, seen, function(group, head)
  if due then
    take_out(group, subject, head)
    head.due = due
  end
  if body ~= '' then
    head.envelope = rewritten(head.envelope)
  end
  redis.call('HSET', group.body, subject, pack_head(head))
  if due then
    place(group, subject, head, now)
  end
  if lines ~= '' then
    remember_act(group, subject, head, 6, lines, now)
  end
end)
