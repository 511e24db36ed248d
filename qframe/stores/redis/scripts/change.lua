#!lua
-- Purpose: gives a subject another body and headers, for every group.
-- KEYS[1] slot: the slot's prefix; what is touched begins with it.
-- ARGV[1] kind, ARGV[2] subject, ARGV[3] body, as msgpack bytes, ARGV[4] headers, as msgpack.
-- Reply: done, absent (no group has it) or doing (a group has it in hand, and nothing changed).
-- Cost: 3 commands, and 3 for each group that has it.
-- Promise: one atomic step over all groups of the slot.
local slot = KEYS[1]
local kind, subject, body, headers = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
--@include bell head log timer
return change_heads(slot, kind, subject, function(group, head)
  -- The envelope is [id, key, headers, body]: id and key stay.
  local after_key = skip(head.envelope, skip(head.envelope, 2))
  head.envelope = string.sub(head.envelope, 1, after_key - 1) .. headers .. body
  redis.call('HSET', group.body, subject, pack_head(head))
end)
