#!lua flags=allow-oom
-- Purpose: makes claims last longer.
-- KEYS[1] scope: the scope's prefix; what is touched begins with it.
-- ARGV[1] lease (ms); then for each effect two: key, token.
-- Reply: for each effect 1 renewed, 0 if the token does not hold it.
-- Cost: 2 commands for each effect.
-- Promise: one atomic step; only the token's holder keeps a claim.
local scope = KEYS[1]
local lease = ARGV[1]
local replies = {}
for i = 2, #ARGV, 2 do
  local key = scope .. ARGV[i]
  local held = redis.call('GET', key) == 'p' .. ARGV[i + 1]
  if held then
    redis.call('PEXPIRE', key, lease)
  end
  replies[#replies + 1] = held and 1 or 0
end
return replies
