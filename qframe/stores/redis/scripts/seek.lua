#!lua flags=allow-oom
-- Purpose: moves a stream's group to an offset of a slot.
-- KEYS[1] slot: the slot's prefix; what is touched begins with it.
-- ARGV[1] name (group), ARGV[2] offset; it is cut to what is kept.
-- Reply: 0. -2 if there is no such group.
-- Cost: 8 commands, and 2 for each dead letter that the line hands out again.
-- Promise: one atomic step; what was handed out is fenced off, what left the line is forgotten.
local slot = KEYS[1]
local name, offset = ARGV[1], tonumber(ARGV[2])
--@include head bell
local group = group_of(slot, name, 'stream')
if redis.call('EXISTS', group.cursor) == 0 then
  return -2
end
local head = tonumber(redis.call('GET', slot .. 'head') or 0)
local first = tonumber(redis.call('GET', slot .. 'first') or 0)
local to = math.min(math.max(offset, first), head)
for _, member in ipairs(redis.call('ZRANGE', group.dead, 0, -1)) do
  if struct.unpack('>I8', member) >= to then
    redis.call('ZREM', group.dead, member)
    redis.call('HDEL', group.graves, member)
  end
end
redis.call('DEL', group.waiting, group.retry, group.todo, group.doing, group.body, group.tries)
local text = string.format('%.0f', to)
redis.call('HSET', group.cursor, 'floor', text, 'read', text,
  'base', string.format('%.0f', to - redis.call('ZCARD', group.dead)),
  'receipt', '', 'lease', 0, 'settled', '', 'acked', 0, 'cancelled', 0)
ring(slot)
return 0
