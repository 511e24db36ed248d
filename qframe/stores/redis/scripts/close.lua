#!lua flags=allow-oom
-- Purpose: has a slot take nothing any more, and fences its owners: it is to be split in two.
-- KEYS[1] slot: the slot's prefix; what is touched begins with it.
-- ARGV[1] given (now), ARGV[2] kind, ARGV[3] keeps (1 where a history is kept, else 0).
-- Reply: 1 closed, 0 if it was closed before.
-- Cost: 4 commands, and for each group what take costs.
-- Promise: one atomic step; what groups had in doing comes back, counted and lost, under epochs
--   that are larger by one.
local slot = KEYS[1]
local given, kind, keeps = ARGV[1], ARGV[2], ARGV[3]
--@include time many bell closed head places text log ranges parking window fence
if is_closed(slot) then
  return 0
end
redis.call('SET', slot .. 'closed', 1)
local now = time_ms(given)
for _, name in ipairs(redis.call('HKEYS', slot .. 'groups')) do
  local group, owner = load_group(slot, name, kind)
  if owner then -- else somebody else has removed the cursor
    local high, low = halves(owner)
    if low == 4294967295 then
      high, low = high + 1, -1
    end
    group.gone = keeps == '1' and {} or nil
    fence(group, string.format('%08x%08x', high, low + 1), now)
    if group.gone and #group.gone > 0 then
      --@include history lost
      remember_lost(group.at, group.gone, now)
    end
  end
end
ring(slot) -- whoever sleeps in the belief that it owns the slot hears that it does not
return 1
