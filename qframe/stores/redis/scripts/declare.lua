#!lua flags=allow-oom
-- Purpose: writes a topic's line, if it is as it was read.
-- KEYS[1] topics: the hash of a namespace's topics.
-- ARGV[1] name, ARGV[2] seen (its line as it was read, '' if there was none), ARGV[3] line.
-- Reply: 1 if it is written, 0 if its line is another one by now, and nothing is changed.
-- Cost: 2 commands.
-- Promise: one atomic step. A worker can start on a full server, or none could drain it.
local topics = KEYS[1]
local name, seen, line = ARGV[1], ARGV[2], ARGV[3]
--@may HGET(topics) HSET(topics)
if (redis.call('HGET', topics, name) or '') ~= seen then
  return 0
end
redis.call('HSET', topics, name, line)
return 1
