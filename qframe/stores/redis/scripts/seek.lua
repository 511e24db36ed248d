#!lua flags=allow-oom
-- Purpose: moves a stream's group to an offset of a slot.
-- KEYS[1] slot: the slot's prefix; what is touched begins with it.
-- ARGV[1] name (group), ARGV[2] offset; it is cut to what is kept.
-- Reply: 0. -2 if there is no such group.
-- Cost: 9 commands, and where the line hands out something again 1, another for each 500 dead
--   letters, and 4 or 5 for each 500 of them that it hands out again. Of a group that has kept
--   order 2 more, and 1 for each subject.
-- Promise: one atomic step; what was handed out is fenced off, what left the line is forgotten.
local slot = KEYS[1]
local name, offset = ARGV[1], tonumber(ARGV[2])
--@include head bell closed text dead
local group, epoch = load_group(slot, name, 'stream')
if not epoch then
  return -2
end
if is_closed(slot) then
  return refusal()
end
local head = tonumber(redis.call('GET', slot .. 'head') or 0)
local first = tonumber(redis.call('GET', slot .. 'first') or 0)
local to = math.min(math.max(offset, first), head)
-- All in this one step, or a message would stand in two places; but many in each command, and none
-- where the line hands out nothing again.
local again, start = {}, 0
while to < head do
  local page = redis.call('ZRANGE', group.dead, start, start + 499)
  if #page == 0 then
    break
  end
  for _, member in ipairs(page) do
    if struct.unpack('>I8', member) >= to then
      again[#again + 1] = member
    end
  end
  start = start + 500
end
if #again > 500 and #again == redis.call('ZCARD', group.dead) then
  redis.call('UNLINK', group.dead, group.graves, group.named, group.keyed)
  again = {}
end
remove_dead_letters(group, again)
if group.backlog then
  for _, subject in ipairs(redis.call('HKEYS', group.body)) do
    redis.call('UNLINK', behind_of(group, subject))
  end
  redis.call('HSET', group.cursor, 'behind', 0, 'parked', 0, 'running', 0)
end
redis.call('UNLINK', group.waiting, group.retry, group.todo, group.doing, group.body, group.tries)
local text = string.format('%.0f', to)
redis.call('HSET', group.cursor, 'floor', text, 'read', text,
  'base', string.format('%.0f', to - redis.call('ZCARD', group.dead)),
  'receipt', '', 'lease', 0, 'settled', '', 'acked', 0, 'cancelled', 0)
ring(slot)
return 0
