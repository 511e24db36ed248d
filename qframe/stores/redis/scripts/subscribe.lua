#!lua flags=allow-oom
-- Purpose: makes groups collect from a slot.
-- KEYS[1] slot: the slot's prefix; what is touched begins with it.
-- ARGV[1] given (now), ARGV[2] kind, ARGV[3] expires (after so many ms without a subscription; ''
--   for never), ARGV[4] max parked; then for each group two: name, start. It is earliest or latest
--   in a stream; elsewhere earliest in the slot that decides, then what that slot answered (claims
--   or joins), or latest.
-- Reply: for each group two: 1 if it is new, else 0; claims if it has what was kept for the first
--   ones, else joins. [-3, name] if remains of a dropped group of this name are there still.
-- Cost: 1 command, and for each group 6 in a stream, 5 elsewhere, 2 more where it expires; 13 to
--   25 more to take over what was kept, and for ordered 1 or 2 for each subject. 3 where it is
--   there, 4 if it expires. Some more where it begins or ends to keep order, and in a closed slot.
--   A second group copies what was kept, which takes time by its size.
-- Promise: one atomic step; what was published before any group existed goes whole to each group
--   that claims it in one call.
local slot = KEYS[1]
local given, kind, expires, max_parked = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
--@include time closed head
local befores, replies, claiming, claimed = {}, {}, {}, nil

-- Whether a group is there, and subscribes on the same terms as before, none of which expires.
local function is_as_before(name)
  local cursor = redis.call('HMGET', group_of(slot, name, kind).cursor, 'epoch', 'max_parked')
  return cursor[1] and max_parked == (cursor[2] or '0') and not expires
    and not redis.call('ZSCORE', slot .. 'expiries', name)
end

if is_closed(slot) then
  for i = 5, #ARGV, 2 do
    if not is_as_before(ARGV[i]) then
      return refusal()
    end
  end
end

for i = 5, #ARGV, 2 do
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

-- Notes whether a group keeps order, if that has changed. What it has in doing when it begins to
-- is counted from then on.
local function keep_order(group, before)
  if max_parked == (before or '0') then
    return
  end
  if not before then
    redis.call('HSET', group.cursor, 'behind', 0, 'parked', 0,
      'running', redis.call('ZCARD', group.doing))
  end
  redis.call('HSET', group.cursor, 'max_parked', max_parked)
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
  local cursor = before and redis.call('HMGET', group.cursor, 'epoch', 'max_parked') or {}
  if cursor[1] then
    keep_order(group, cursor[2])
    return 0, before
  end
  local word = before or 'joins'
  if kind == 'stream' then
    start_in_log(group, start)
    keep_order(group, false)
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

for i = 5, #ARGV, 2 do
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
