#!lua flags=no-writes
-- Purpose: looks up how attempts of a message have ended, or of the last one of a key that has.
-- KEYS[1] slot: the slot's prefix; what is read begins with it.
-- ARGV[1] id, ARGV[2] key (of the message, in place of its id; '': the id is given).
-- Reply: flat: a group, the message's id, and its entries, as `parts/history.lua` has them.
-- Cost: 2 commands, and 1 for each group, 2 for a key.
-- Promise: one atomic look; nothing is changed.
local slot = KEYS[1]
local id, key = ARGV[1], ARGV[2]
local found = {}
local names = redis.call('HKEYS', slot .. 'groups')
names[#names + 1] = '' -- what was done to timers before there was a group
for _, name in ipairs(names) do
  local kept = slot .. 'g:' .. name .. ':history'
  local wanted = key == '' and id or redis.call('HGET', kept, '\0' .. key)
  local entries = wanted and redis.call('HGET', kept, wanted)
  if entries then
    found[#found + 1], found[#found + 2], found[#found + 3] = name, wanted, entries
  end
end
return found
