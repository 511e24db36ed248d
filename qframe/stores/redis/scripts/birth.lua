#!lua flags=allow-oom
-- Purpose: names a topic's data, once.
-- KEYS[1] slot: the prefix of slot 0; what is touched begins with it.
-- ARGV[1] drawn: the name, if there is none.
-- Reply: the name that counts from now on.
-- Cost: 1 command, 2 the first time.
-- Promise: one atomic step; all who ask get the same name until the slot's data are lost. A worker
--   can start on a full server.
local slot = KEYS[1]
local drawn = ARGV[1]
local known = redis.call('GET', slot .. 'birth')
if known then
  return known
end
redis.call('SET', slot .. 'birth', drawn)
return drawn
