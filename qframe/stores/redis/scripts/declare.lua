#!lua flags=allow-oom
-- Purpose: makes a topic known, or changes its options.
-- KEYS[1] topics: the hash of a namespace's topics.
-- ARGV[1] name, ARGV[2] identity (kind and slots), ARGV[3] options, ARGV[4] seen (its line as it
--   was read, '' if there was none).
-- Reply: [1 if it is declared so, 0 if it has another kind or has never had so many slots, -1 if
--   its line is another one by now; unless it is 1, nothing is changed; the identity that it has,
--   with how far its slots have grown].
-- Cost: 2 commands.
-- Promise: one atomic step; the kind of a topic never changes, nor do its slots but by growing. A
--   worker can start on a full server, or none could drain it.
local topics = KEYS[1]
local name, identity, options, seen = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
--@may HGET(topics) HSET(topics)
local before = redis.call('HGET', topics, name)
if (before or '') ~= seen then
  return { -1, '' }
end
if before then
  local known = string.match(before, '^[^ ]+ [^ ]+')
  local kind, slots, growth = string.match(known, '^([^ ]+) (%d+)(.*)$')
  local first, target = string.match(growth, '^,(%d+),%d+,%d+,(%d+),')
  local asked_kind, asked = string.match(identity, '^([^ ]+) (%d+)')
  local least, most = slots - (first or 0), math.max(slots, target or 0)
  if kind ~= asked_kind or tonumber(asked) < least or tonumber(asked) > most then
    return { 0, known }
  end
  identity = known
end
redis.call('HSET', topics, name, identity .. ' ' .. options)
return { 1, identity }
