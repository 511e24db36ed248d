#!lua flags=allow-oom
-- Purpose: removes what a slot no longer needs: marks that have passed, old messages of a stream.
-- KEYS[1] slot: the slot's prefix; what is touched begins with it.
-- ARGV[1] given (now), ARGV[2] kind, ARGV[3] retain (ms), ARGV[4] limit, 500 at most.
-- Reply: how many.
-- Cost: 2 commands, 3 where marks have passed; for a stream 3, 1 for each group, 1 for each entry
--   that is read, 2 to trim.
-- Promise: one atomic step; nothing that a group has not settled is removed.
local slot = KEYS[1]
local given, kind, retain, limit = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
--@include time log
local now = time_ms(given)
local passed = redis.call('ZRANGEBYSCORE', slot .. 'ids', '-inf', string.format('%.0f', now),
  'LIMIT', 0, limit)
if #passed > 0 then
  redis.call('ZREM', slot .. 'ids', unpack(passed))
end
local removed = #passed
if kind ~= 'stream' or removed >= limit then
  return removed
end
local first = tonumber(redis.call('GET', slot .. 'first') or 0)
local last = tonumber(redis.call('GET', slot .. 'head') or 0)
for _, name in ipairs(redis.call('HKEYS', slot .. 'groups')) do
  last = math.min(last, tonumber(redis.call('HGET', slot .. 'g:' .. name .. ':cursor', 'floor')))
end
last = math.min(last, first + limit - removed)
local kept, begin = first, nil
while kept < last do
  local entry = entry_at(slot .. 'log', kept)
  local start, size = first_and_count(entry[1])
  begin = start
  if tonumber(fields_of(entry).t) > now - retain then
    break
  end
  removed = removed + math.min(start + size, last) - kept
  kept = math.min(start + size, last)
  begin = kept == start + size and kept or start
end
if kept > first then
  -- An entry is removed with the last of its messages; till then `first` says what is kept of it.
  redis.call('SET', slot .. 'first', string.format('%.0f', kept))
  redis.call('XTRIM', slot .. 'log', 'MINID', string.format('%.0f-0', begin))
end
return removed
