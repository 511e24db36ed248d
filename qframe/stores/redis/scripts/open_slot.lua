#!lua flags=allow-oom
-- Purpose: makes a slot that is not in use yet, with just the groups that another one has.
-- KEYS[1] slot: the slot's prefix; what is touched begins with it.
-- ARGV[1] kind, ARGV[2] token (of who alone may write there), ARGV[3] following (under which it is
--   open then), ARGV[4] again (1 if it is open already, else 0), ARGV[5] claimed (1 if some group
--   took what was kept, else 0); then for each group four: its name, its word in `groups`, when it
--   expires ('' for never), max parked ('' where it has never kept order).
-- Reply: 1 if remains of a group that is gone are there still, else 0; an error CLOSED if the slot
--   is in use, or another's, or was discarded since.
-- Cost: 6 commands, and 4 to 6 for each group; those of drop_group for one that is gone.
-- Promise: one atomic step, but for remains; groups that are there keep what they have.
local slot = KEYS[1]
local kind, token, following, again, claimed = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
--@include closed head documents drop
local opened = redis.call('GET', slot .. 'opened')
if opened ~= token and opened ~= following and (opened or again == '1') then
  return refusal()
end
redis.call('SET', slot .. 'opened', following)
redis.call('SET', slot .. 'closed', 'new')
local wanted, remains = {}, 0
for i = 6, #ARGV, 4 do
  wanted[ARGV[i]] = true
end
for _, name in ipairs(redis.call('HKEYS', slot .. 'groups')) do
  if not wanted[name] then
    local _, more = drop(slot, name, kind)
    remains = math.max(remains, more)
  end
end
for i = 6, #ARGV, 4 do
  local name, word, expires, max_parked = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local group = group_of(slot, name, kind)
  if redis.call('EXISTS', group.cursor) == 0 then
    redis.call('HSET', group.cursor, 'epoch', '0000000000000000')
    if kind == 'stream' then
      redis.call('HSET', group.cursor, 'floor', 0, 'read', 0, 'base', 0, 'receipt', '',
        'lease', 0, 'settled', '')
    end
  end
  if max_parked ~= '' then
    if redis.call('HSET', group.cursor, 'max_parked', max_parked) == 1 then
      redis.call('HSET', group.cursor, 'behind', 0, 'parked', 0, 'running', 0)
    end
  end
  redis.call('HSET', slot .. 'groups', name, word)
  if expires ~= '' then
    redis.call('ZADD', slot .. 'expiries', expires, name)
  else
    redis.call('ZREM', slot .. 'expiries', name)
  end
end
if claimed == '1' then
  redis.call('SET', slot .. 'claimed', 1)
else
  redis.call('DEL', slot .. 'claimed')
end
return remains
