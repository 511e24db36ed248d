#!lua flags=no-writes
-- Purpose: tells the documents of a space of a group, or a part of them by rank and name.
-- KEYS[1] slot: slot 0's prefix, where documents lie; what is read begins with it.
-- ARGV[1] given (now), ARGV[2] name (group), ARGV[3] space, ARGV[4] after (the rank in 16 digits, a
--   blank and the name behind which a part begins), ARGV[5] bound (all of it have ranks below this,
--   in 16 digits), ARGV[6] limit; these three are '' for all documents.
-- Reply: [now (ms); name, '<version> <written at> <rank> <value>' of each]. -2 if there is no such
--   group.
-- Cost: 3 commands; 1 more for a part that has some.
-- Promise: one atomic step, which changes nothing.
local slot = KEYS[1]
local given, name, space = ARGV[1], ARGV[2], ARGV[3]
local after, bound, limit = ARGV[4], ARGV[5], ARGV[6]
--@include time many documents
if redis.call('HEXISTS', slot .. 'groups', name) == 0 then
  return -2
end
local documents, now = documents_of(slot, name, space), time_ms(given)
if limit == '' then
  return { now, redis.call('HGETALL', documents) }
end
local names, listed = {}, {}
for i, member in ipairs(redis.call('ZRANGEBYLEX', ranks_of(documents), '(' .. after, '(' .. bound,
  'LIMIT', 0, limit)) do
  names[i] = string.sub(member, 18)
end
local values = #names > 0 and read_many('HMGET', documents, names) or {}
for i, document in ipairs(names) do
  listed[2 * i - 1], listed[2 * i] = document, values[i] or ''
end
return { now, listed }
