#!lua flags=allow-oom
-- Purpose: makes claimed effects absent again.
-- KEYS[1] scope: the scope's prefix; what is touched begins with it.
-- ARGV: for each effect two: key, token.
-- Reply: for each effect 1 released, 0 if the token does not hold it.
-- Cost: 2 commands for each effect.
-- Promise: one atomic step; only the token's holder releases, and nothing that is done.
local scope = KEYS[1]
local replies = {}
for i = 1, #ARGV, 2 do
  local key = scope .. ARGV[i]
  local held = redis.call('GET', key) == 'p' .. ARGV[i + 1]
  if held then
    redis.call('DEL', key)
  end
  replies[#replies + 1] = held and 1 or 0
end
return replies
