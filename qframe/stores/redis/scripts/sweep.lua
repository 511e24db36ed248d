#!lua flags=allow-oom
-- Purpose: removes what a slot no longer needs: marks that have passed, groups that have expired,
--   old messages of a stream, and how attempts have ended longer ago than a topic keeps that.
-- KEYS[1] slot: the slot's prefix; what is touched begins with it.
-- ARGV[1] given (now), ARGV[2] kind, ARGV[3] retain (ms), ARGV[4] limit, 500 at most,
--   ARGV[5] history (ms), ARGV[6] past (0 for a slot in use; 1 for the first one of a topic, which
--   was split, and has its groups still; 2 for another one that was split: when its groups expire
--   it does not know any more, and it has history alone).
-- Reply: how many, a group being one; the limit also where more of a group is to be removed; 0 of a
--   slot that is being split.
-- Cost: 6 commands, and 1 for each group; 1 more where marks have passed, 2 for a group of which
--   history has, and those of drop_group for one that has expired; for a stream 3, 1 for each
--   group, 1 for each entry that is read, 2 to trim.
-- Promise: one atomic step; nothing that a group has not settled is removed, unless it has expired.
--   A group is gone with its first step, and its time is kept until the last.
local slot = KEYS[1]
local given, kind, retain = ARGV[1], ARGV[2], tonumber(ARGV[3])
local limit, history, past = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
--@include time closed head documents drop log
if past == '0' and is_closed(slot) then
  return 0
end
local now = time_ms(given)
local passed = redis.call('ZRANGEBYSCORE', slot .. 'ids', '-inf', string.format('%.0f', now),
  'LIMIT', 0, limit)
if #passed > 0 then
  redis.call('ZREM', slot .. 'ids', unpack(passed))
end
local removed = #passed
local expired = past ~= '2' and redis.call('ZRANGEBYSCORE', slot .. 'expiries', '-inf',
  string.format('%.0f', now), 'LIMIT', 0, limit) or {}
for _, name in ipairs(expired) do
  if removed < limit then
    local _, remains = drop(slot, name, kind)
    removed = remains == 1 and limit or removed + 1
  end
end
local names = redis.call('HKEYS', slot .. 'groups')
names[#names + 1] = ''
for _, name in ipairs(names) do
  local group = group_of(slot, name, kind)
  local at = group.at
  local over = removed < limit and redis.call('ZRANGEBYSCORE', at .. 'ended', '-inf',
    string.format('%.0f', now - history), 'LIMIT', 0, limit - removed) or {}
  if #over > 0 then
    redis.call('HDEL', at .. 'history', unpack(over))
    redis.call('ZREM', at .. 'ended', unpack(over))
    removed = removed + #over
  end
end
if kind ~= 'stream' or past ~= '0' or removed >= limit then
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
  local start, size = 0, 0
  if entry then
    start, size = first_and_count(entry[1])
  end
  if start + size <= kept then -- the log has a gap there, which somebody else has made
    local behind = string.format('(%.0f-18446744073709551615', kept)
    entry = redis.call('XRANGE', slot .. 'log', behind, '+', 'COUNT', 1)[1]
    kept = math.min(last, entry and first_and_count(entry[1]) or last)
    begin = kept
  else
    begin = start
    if (tonumber(fields_of(entry).t) or 0) > now - retain then
      break
    end
    removed = removed + math.min(start + size, last) - kept
    kept = math.min(start + size, last)
    begin = kept == start + size and kept or start
  end
end
if kept > first then
  -- An entry is removed with the last of its messages; till then `first` says what is kept of it.
  redis.call('SET', slot .. 'first', string.format('%.0f', kept))
  redis.call('XTRIM', slot .. 'log', 'MINID', string.format('%.0f-0', begin))
end
return removed
