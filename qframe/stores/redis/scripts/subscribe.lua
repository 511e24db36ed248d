#!lua flags=allow-oom
-- Purpose: makes a group collect from a slot.
-- KEYS[1] slot: the slot's prefix; what is touched begins with it.
-- ARGV[1] given (now), ARGV[2] kind, ARGV[3] name (group), ARGV[4] start: earliest or latest in a
--   stream; elsewhere earliest in the slot that decides, then what that slot answered (claims or
--   joins), or latest; ARGV[5] expires (after so many ms without a subscription; '' for never).
-- Reply: [1 if it is new, else 0; claims if it has what was kept for the first group, else joins].
--   [-3] if remains of a dropped group of this name are there still.
-- Cost: 6 commands in a stream, 5 elsewhere, 2 more where it expires; 11 to 21 more to take over
--   what was kept, and for ordered 1 or 2 for each subject. 3 where it is there, 4 if it expires.
-- Promise: one atomic step; what was published before any group existed goes to one group whole.
local slot = KEYS[1]
local given, kind, name, start, expires = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
--@include time head
local before = redis.call('HGET', slot .. 'groups', name)
local group = group_of(slot, name, kind)
if not before and redis.call('EXISTS', group.body) == 1 then
  return { -3 }
end
if expires then
  redis.call('ZADD', slot .. 'expiries', string.format('%.0f', time_ms(given) + expires), name)
elseif before then
  redis.call('ZREM', slot .. 'expiries', name)
end
if before and redis.call('HEXISTS', group.cursor, 'epoch') == 1 then
  return { 0, before }
end
if before and kind ~= 'stream' then -- somebody else has removed the cursor
  redis.call('HSET', group.cursor, 'epoch', '0000000000000000')
  return { 1, before }
end
if kind == 'stream' then
  local head = tonumber(redis.call('GET', slot .. 'head') or 0)
  local first = start == 'latest' and head or tonumber(redis.call('GET', slot .. 'first') or 0)
  local text = string.format('%.0f', first)
  redis.call('HSET', group.cursor, 'epoch', '0000000000000000', 'floor', text, 'read', text,
    'base', text, 'receipt', '', 'lease', 0, 'settled', '')
  redis.call('HSET', slot .. 'groups', name, 'joins')
  return { 1, 'joins' }
end
local claims = start == 'claims'
  or (start == 'earliest' and redis.call('EXISTS', slot .. 'claimed') == 0)
if claims then
  redis.call('SET', slot .. 'claimed', 1)
  local unclaimed = group_of(slot, '', kind)
  for _, part in ipairs({ 'cursor', 'waiting', 'retry', 'todo', 'doing', 'body', 'tries',
                          'following', 'dead', 'graves' }) do
    if redis.call('EXISTS', unclaimed[part]) == 1 then
      redis.call('RENAME', unclaimed[part], group[part])
    end
  end
  if kind == 'ordered' then
    for _, subject in ipairs(redis.call('HKEYS', group.body)) do
      local behind = behind_of(unclaimed, subject)
      if redis.call('EXISTS', behind) == 1 then
        redis.call('RENAME', behind, behind_of(group, subject))
      end
    end
  end
end
redis.call('HSET', group.cursor, 'epoch', '0000000000000000')
redis.call('HSET', slot .. 'groups', name, claims and 'claims' or 'joins')
return { 1, claims and 'claims' or 'joins' }
