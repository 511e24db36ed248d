#!lua flags=allow-oom
-- Purpose: notes groups in slot 0 that was split, and decides who gets what was kept.
-- KEYS[1] slot: slot 0's prefix, where the list of groups stays; what is touched begins with it.
-- ARGV[1] given (now), ARGV[2] kind, ARGV[3] expires (after so many ms without a subscription; ''
--   for never); then for each group two: name, start, as in subscribe.
-- Reply: for each group two: 1 if it is new, else 0; claims or joins, as in subscribe.
-- Cost: 3 commands for each group, 1 more where it expires; 1 or 2 for those that claim.
-- Promise: one atomic step; groups that claim in one call all do.
local slot = KEYS[1]
local given, kind, expires = ARGV[1], ARGV[2], tonumber(ARGV[3])
--@include time
local replies, claimed, claims = {}, nil, false

local function word_of(start)
  if kind == 'stream' or start ~= 'earliest' then
    return 'joins'
  end
  if claimed == nil then
    claimed = redis.call('EXISTS', slot .. 'claimed') == 1
  end
  return claimed and 'joins' or 'claims'
end

for i = 4, #ARGV, 2 do
  local name = ARGV[i]
  local before = redis.call('HGET', slot .. 'groups', name)
  local word = before or word_of(ARGV[i + 1])
  if not before then
    redis.call('HSET', slot .. 'groups', name, word)
    claims = claims or word == 'claims'
  end
  if expires then
    redis.call('ZADD', slot .. 'expiries', string.format('%.0f', time_ms(given) + expires), name)
  elseif before then
    redis.call('ZREM', slot .. 'expiries', name)
  end
  replies[#replies + 1] = before and 0 or 1
  replies[#replies + 1] = word
end
if claims then
  redis.call('SET', slot .. 'claimed', 1)
end
return replies
