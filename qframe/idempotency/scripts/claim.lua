#!lua flags=allow-oom
-- Purpose: claims effects that are absent.
-- KEYS[1] scope: the scope's prefix; what is touched begins with it.
-- ARGV[1] lease (ms); then for each effect two: key, token.
-- Reply: for each effect -1 claimed, -2 done, or the milliseconds of another's lease.
-- Cost: 2 commands for each effect.
-- Promise: one atomic step; a token that has claimed an effect claims it again. A full server is
--   drained by those who claim, too.
local scope = KEYS[1]
local lease = ARGV[1]
local replies = {}
for i = 2, #ARGV, 2 do
  local key, running = scope .. ARGV[i], 'p' .. ARGV[i + 1]
  local state = redis.call('GET', key)
  local reply = -1
  if not state or state == running then
    redis.call('SET', key, running, 'PX', lease)
  elseif string.sub(state, 1, 1) == 'd' then
    reply = -2
  else
    reply = math.max(0, redis.call('PTTL', key))
  end
  replies[#replies + 1] = reply
end
return replies
