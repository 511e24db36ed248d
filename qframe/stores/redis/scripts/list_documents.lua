#!lua flags=no-writes
-- Purpose: tells all documents of a space of a group.
-- KEYS[1] slot: slot 0's prefix, where documents lie; what is read begins with it.
-- ARGV[1] given (now), ARGV[2] name (group), ARGV[3] space.
-- Reply: [now (ms); name, '<version> <written at> <value>' of each]. -2 if there is no such group.
-- Cost: 3 commands.
-- Promise: one atomic step, which changes nothing.
local slot = KEYS[1]
local given, name, space = ARGV[1], ARGV[2], ARGV[3]
--@include time documents
if redis.call('HEXISTS', slot .. 'groups', name) == 0 then
  return -2
end
return { time_ms(given), redis.call('HGETALL', documents_of(slot, name, space)) }
