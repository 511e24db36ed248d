#!lua flags=allow-oom
-- Purpose: makes groups collect from a slot.
-- KEYS[1] slot: the slot's prefix; what is touched begins with it.
-- ARGV[1] given (now), ARGV[2] kind, ARGV[3] expires (after so many ms without a subscription; ''
--   for never); then for each group two: name, start. It is earliest or latest in a stream;
--   elsewhere earliest in the slot that decides, then what that slot answered (claims or joins), or
--   latest.
-- Reply: for each group two: 1 if it is new, else 0; claims if it has what was kept for the first
--   ones, else joins. [-3, name] if remains of a dropped group of this name are there still.
-- Cost: for each group 6 commands in a stream, 5 elsewhere, 2 more where it expires; 13 to 25 more
--   to take over what was kept, and for ordered 1 or 2 for each subject. 3 where it is there, 4 if
--   it expires. A second group copies what was kept, which takes time by its size.
-- Promise: one atomic step; what was published before any group existed goes whole to each group
--   that claims it in one call.
local slot = KEYS[1]
local given, kind, expires = ARGV[1], ARGV[2], tonumber(ARGV[3])
--@include time head
local befores, replies, claiming, claimed = {}, {}, {}, nil

for i = 4, #ARGV, 2 do
  local name = ARGV[i]
  befores[i] = redis.call('HGET', slot .. 'groups', name)
  if not befores[i] and redis.call('EXISTS', group_of(slot, name, kind).body) == 1 then
    return { -3, name }
  end
end

local function claims(start)
  if start == 'earliest' and claimed == nil then
    claimed = redis.call('EXISTS', slot .. 'claimed') == 1
  end
  return start == 'claims' or (start == 'earliest' and not claimed)
end

local function start_in_log(group, start)
  local head = tonumber(redis.call('GET', slot .. 'head') or 0)
  local first = start == 'latest' and head or tonumber(redis.call('GET', slot .. 'first') or 0)
  local text = string.format('%.0f', first)
  redis.call('HSET', group.cursor, 'epoch', '0000000000000000', 'floor', text, 'read', text,
    'base', text, 'receipt', '', 'lease', 0, 'settled', '')
end

-- Gives a group what was kept: the keys themselves to the last one, copies to the others.
local function hand_over(group, is_last)
  local unclaimed = group_of(slot, '', kind)
  local function give(from, to)
    if redis.call('EXISTS', from) == 1 then
      if is_last then
        redis.call('RENAME', from, to)
      else
        redis.call('COPY', from, to, 'REPLACE')
      end
    end
  end
  for _, part in ipairs({ 'cursor', 'waiting', 'retry', 'todo', 'doing', 'body', 'tries',
                          'following', 'dead', 'graves', 'named', 'keyed' }) do
    give(unclaimed[part], group[part])
  end
  give(unclaimed.at .. 'history', group.at .. 'history')
  give(unclaimed.at .. 'ended', group.at .. 'ended')
  if kind == 'ordered' then
    for _, subject in ipairs(redis.call('HKEYS', group.body)) do
      give(behind_of(unclaimed, subject), behind_of(group, subject))
    end
  end
end

-- Returns whether the group is new, and what the other slots follow.
local function subscribe(name, start, before)
  local group = group_of(slot, name, kind)
  if expires then
    redis.call('ZADD', slot .. 'expiries', string.format('%.0f', time_ms(given) + expires), name)
  elseif before then
    redis.call('ZREM', slot .. 'expiries', name)
  end
  if before and redis.call('HEXISTS', group.cursor, 'epoch') == 1 then
    return 0, before
  end
  local word = before or 'joins'
  if kind == 'stream' then
    start_in_log(group, start)
    redis.call('HSET', slot .. 'groups', name, 'joins')
    return 1, 'joins'
  end
  if not before and claims(start) then
    claiming[#claiming + 1] = group
    word = 'claims'
  else -- or somebody else has removed the cursor
    redis.call('HSET', group.cursor, 'epoch', '0000000000000000')
  end
  if not before then
    redis.call('HSET', slot .. 'groups', name, word)
  end
  return 1, word
end

for i = 4, #ARGV, 2 do
  local is_new, word = subscribe(ARGV[i], ARGV[i + 1], befores[i])
  replies[#replies + 1] = is_new
  replies[#replies + 1] = word
end
if #claiming > 0 then
  redis.call('SET', slot .. 'claimed', 1)
end
for i, group in ipairs(claiming) do
  hand_over(group, i == #claiming)
  redis.call('HSET', group.cursor, 'epoch', '0000000000000000')
end
return replies
