#!lua flags=allow-oom
-- Purpose: marks claimed effects as done.
-- KEYS[1] scope: the scope's prefix; what is touched begins with it.
-- ARGV[1] kept (ms); then for each effect two: key, token.
-- Reply: for each effect 1 done, 0 if the token does not hold it.
-- Cost: 2 commands for each effect.
-- Promise: one atomic step; only the token's holder finishes, and may do it again.
local scope = KEYS[1]
local kept = ARGV[1]
local replies = {}
for i = 2, #ARGV, 2 do
  local key, token = scope .. ARGV[i], ARGV[i + 1]
  local state = redis.call('GET', key)
  local held = state == 'p' .. token or state == 'd' .. token
  if held then
    redis.call('SET', key, 'd' .. token, 'PX', kept)
  end
  replies[#replies + 1] = held and 1 or 0
end
return replies
