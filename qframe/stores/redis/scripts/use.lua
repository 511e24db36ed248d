#!lua flags=allow-oom
-- Purpose: has a slot be in use that was opened, as far as its own keys say.
-- KEYS[1] slot: the slot's prefix; what is touched begins with it.
-- ARGV[1] token (under which it was opened), ARGV[2] leased (until when the lease lasts under which
--   the caller sees to the growth).
-- Reply: 0; an error CLOSED if the slot is another's, or was discarded since.
-- Cost: 3 commands.
-- Promise: one atomic step, the same a second time. Nobody discards it any more but who has leased
--   the growth since.
local slot = KEYS[1]
local token, leased = ARGV[1], ARGV[2]
--@include closed
local used = '=' .. leased
local opened = redis.call('GET', slot .. 'opened')
if opened ~= token and opened ~= used then
  return refusal()
end
redis.call('SET', slot .. 'opened', used)
redis.call('DEL', slot .. 'closed')
return 0
