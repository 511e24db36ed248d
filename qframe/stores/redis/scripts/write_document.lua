#!lua flags=allow-oom
-- Purpose: writes a document of a group, or removes it.
-- KEYS[1] slot: slot 0's prefix, where documents lie; what is touched begins with it.
-- ARGV[1] given (now), ARGV[2] name (group), ARGV[3] space, ARGV[4] document, ARGV[5] seen (the
--   version that it must have, 0 if it must not be there; '' for any), ARGV[6] fresh (version; 0 to
--   remove it), ARGV[7] value.
-- Reply: [1 if it was not there, else 0; now (ms)]. [-1] if it has another version. -2 if there is
--   no such group.
-- Cost: 2 commands where it has another version, else 4; 3 where what is not there is removed.
--   1 more where its value has changed.
-- Promise: one atomic step.
local slot = KEYS[1]
local given, name, space, document, seen = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local fresh, value = ARGV[6], ARGV[7]
--@include time documents
if redis.call('HEXISTS', slot .. 'groups', name) == 0 then
  return -2
end
local documents = documents_of(slot, name, space)
local before = redis.call('HGET', documents, document)
local version, old = string.match(before or '0 0 ', '^(%d+) %d+ (.*)$')
if seen ~= '' and tonumber(seen) ~= tonumber(version or 0) then -- what cannot be read has none
  return { -1 }
end
local now = time_ms(given)
if fresh ~= '0' then
  redis.call('HSET', documents, document, string.format('%s %.0f %s', fresh, now, value))
elseif before then
  redis.call('HDEL', documents, document)
end
if (before and old) ~= (fresh ~= '0' and value) then
  ring_documents(slot, name, space)
end
return { before and 0 or 1, now }
