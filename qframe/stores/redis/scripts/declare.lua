#!lua flags=allow-oom
-- Purpose: makes a topic known, or changes its options.
-- KEYS[1] topics: the hash of a namespace's topics.
-- ARGV[1] name, ARGV[2] identity (kind and slots), ARGV[3] options.
-- Reply: empty, or the identity under which it was declared before, and nothing is changed.
-- Cost: 2 commands.
-- Promise: one atomic step; kind and slots of a topic never change. A worker can start on a full
--   server, or none could drain it.
local topics = KEYS[1]
local name, identity, options = ARGV[1], ARGV[2], ARGV[3]
local before = redis.call('HGET', topics, name)
if before then
  local known = string.match(before, '^[^ ]+ [^ ]+')
  if known ~= identity then
    return known
  end
end
redis.call('HSET', topics, name, identity .. ' ' .. options)
return ''
