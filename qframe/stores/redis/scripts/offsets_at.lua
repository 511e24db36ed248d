#!lua flags=no-writes
-- Purpose: finds the first kept offset of a slot that joined the log at a time or later.
-- KEYS[1] slot: the slot's prefix; what is touched begins with it.
-- ARGV[1] time (ms).
-- Reply: the offset, as text; the next one to be given out where all are older.
-- Cost: 2 commands, and one read of an entry for each halving of the log.
-- Promise: it changes nothing. Entries join in the order of their times, so halving finds the
--   first.
local slot = KEYS[1]
local time = tonumber(ARGV[1])
--@include log
local head = tonumber(redis.call('GET', slot .. 'head') or 0)
local low = tonumber(redis.call('GET', slot .. 'first') or 0)
local high = head
while low < high do
  local entry = entry_at(slot .. 'log', math.floor((low + high) / 2))
  if not entry then
    return string.format('%.0f', head) -- subjects have no log
  end
  local first, size = first_and_count(entry[1])
  if tonumber(fields_of(entry).t) >= time then
    high = math.max(low, first)
  else
    low = first + size
  end
end
return string.format('%.0f', low)
