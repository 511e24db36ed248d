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
  -- The envelope is [id, key, headers, body]: id and key stay. What is none dies of itself.
  local begins = ({ [0x94] = 2, [0xdc] = 4, [0xdd] = 6 })[string.byte(head.envelope)]
  local after_id = begins and skip(head.envelope, begins)
  local after_key = after_id and skip(head.envelope, after_id)
  if not after_key then
    return
  end
  head.envelope = string.sub(head.envelope, 1, after_key - 1) .. headers .. body
  redis.call('HSET', group.body, subject, pack_head(head))
end)
