#!lua flags=allow-oom
-- Purpose: looks up how attempts of a message have ended.
-- KEYS[1] slot: the slot's prefix; what is read begins with it.
-- ARGV[1] id.
-- Reply: flat: a group, and its entries of the message, as `parts/history.lua` has them.
-- Cost: 2 commands, and 1 for each group.
-- Promise: one atomic look; nothing is changed.
local slot = KEYS[1]
local id = ARGV[1]
local found = {}
local names = redis.call('HKEYS', slot .. 'groups')
names[#names + 1] = '' -- what was done to timers before there was a group
for _, name in ipairs(names) do
  local entries = redis.call('HGET', slot .. 'g:' .. name .. ':history', id)
  if entries then
    found[#found + 1], found[#found + 2] = name, entries
  end
end
return found
