#!lua flags=allow-oom
-- Purpose: notes that a topic has grown so far.
-- KEYS[1] topics: the hash of a namespace's topics.
-- ARGV[1] name, ARGV[2] identity (kind and slots, as they were read), ARGV[3] following (the same,
--   further grown).
-- Reply: 1 if it is noted, 0 if the topic stands elsewhere by now, and nothing is changed.
-- Cost: 2 commands.
-- Promise: one atomic step; its options stay.
local topics = KEYS[1]
local name, identity, following = ARGV[1], ARGV[2], ARGV[3]
--@may HGET(topics) HSET(topics)
local before = redis.call('HGET', topics, name)
if not before or string.match(before, '^[^ ]+ [^ ]+') ~= identity then
  return 0
end
redis.call('HSET', topics, name, following .. string.sub(before, #identity + 1))
return 1
