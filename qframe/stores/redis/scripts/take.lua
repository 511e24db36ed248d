#!lua flags=allow-oom
-- Purpose: takes a slot under a new epoch; what is in doing there comes back, counted and lost.
-- KEYS[1] slot: the slot's prefix; what is touched begins with it.
-- ARGV[1] given (now), ARGV[2] kind, ARGV[3] name (group), ARGV[4] epoch,
--   ARGV[5] keeps (1 where a history is kept, else 0).
-- Reply: 1 taken, 0 refused since the slot's epoch is larger, or the slot is closed. -2 if there is
--   no such group.
-- Cost: 6 commands, 7 for a stream; 7 or 8 for each subject that comes back; for a window 3, and 3
--   for each message that does, some more where order is kept.
-- Promise: one atomic step; epochs only grow, and whoever had the slot before is fenced from here
--   on.
local slot = KEYS[1]
local given, kind, name, epoch, keeps = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
--@include time many bell closed head places text log ranges parking window fence
local group, owner = load_group(slot, name, kind)
if not owner then
  return -2
end
if is_closed(slot) then
  return 0
end
if epoch == owner then
  return 1
end
local high, low = halves(epoch)
local owners_high, owners_low = halves(owner)
if high < owners_high or (high == owners_high and low < owners_low) then
  return 0
end
local now = time_ms(given)
group.gone = keeps == '1' and {} or nil
fence(group, epoch, now)
if group.gone and #group.gone > 0 then
  --@include history lost
  remember_lost(group.at, group.gone, now)
end
ring(slot) -- whoever sleeps in the belief that it owns the slot hears that it does not
return 1
