#!lua flags=no-writes
-- Purpose: finds the dead letters of a group in a slot whose value has a text in it, in steps.
-- KEYS[1] slot: the slot's prefix; what is read begins with it.
-- ARGV[1] name (group), ARGV[2] cursor (0 at first), ARGV[3] step, ARGV[4] text.
-- Reply: flat: the next cursor, 0 at the end; then for each its member, when it died, its value.
-- Cost: 1 command for about `step` of the dead, and 1 for each that is found.
-- Promise: it changes nothing; it parses nothing, so the caller checks what has the text where.
local slot = KEYS[1]
local name, cursor, step, text = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local at = slot .. 'g:' .. name .. ':'
local page = redis.call('HSCAN', at .. 'graves', cursor, 'COUNT', step)
local found = { page[1] }
for i = 1, #page[2], 2 do
  if string.find(page[2][i + 1], text, 1, true) then
    local died = redis.call('ZSCORE', at .. 'dead', page[2][i])
    if died then
      found[#found + 1] = page[2][i]
      found[#found + 1] = died
      found[#found + 1] = page[2][i + 1]
    end
  end
end
return found
