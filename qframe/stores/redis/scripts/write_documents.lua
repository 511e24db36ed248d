#!lua flags=allow-oom
-- Purpose: writes documents of a group, or removes them.
-- KEYS[1] slot: slot 0's prefix, where documents lie; what is touched begins with it.
-- ARGV[1] given (now), ARGV[2] name (group), ARGV[3] space; then for each document five: its name,
--   seen (the version that it must have, 0 if it must not be there; '' for any), fresh (version; 0
--   to remove it), rank, value.
-- Reply: [now (ms); for each 1 if it was not there, else 0; -1 if it has another version]. -2 if
--   there is no such group.
-- Cost: 3 commands; 1 more if some are set, 1 if some are removed, 1 if some get another rank, 1 if
--   some lose theirs, 1 if values change. Of over 500 documents these are several.
-- Promise: one atomic step.
local slot = KEYS[1]
local given, name, space = ARGV[1], ARGV[2], ARGV[3]
--@include time many documents
if redis.call('HEXISTS', slot .. 'groups', name) == 0 then
  return -2
end
local documents, now, names = documents_of(slot, name, space), time_ms(given), {}
for i = 4, #ARGV, 5 do
  names[#names + 1] = ARGV[i]
end
local stored, replies = read_many('HMGET', documents, names), { now }
local set, removed, ranked, unranked, rings = {}, {}, {}, {}, false
for i, document in ipairs(names) do
  local seen, fresh, rank, value = unpack(ARGV, 5 * i, 5 * i + 3)
  local before = stored[i]
  local version, ranks, old = string.match(before or '0 0 0 ', '^(%d+) %d+ (%d+) (.*)$')
  if seen ~= '' and tonumber(seen) ~= tonumber(version or 0) then -- what cannot be read has none
    replies[i + 1] = -1
  else
    replies[i + 1] = before and 0 or 1
    local there = fresh ~= '0'
    if there then
      set[#set + 1] = document
      set[#set + 1] = string.format('%s %.0f %s %s', fresh, now, rank, value)
    elseif before then
      removed[#removed + 1] = document
    end
    local was, is = before and ranks, there and rank
    if was and was ~= is then
      unranked[#unranked + 1] = ranked_name(was, document)
    end
    if is and was ~= is then
      ranked[#ranked + 1] = 0
      ranked[#ranked + 1] = ranked_name(is, document)
    end
    rings = rings or (before and old) ~= (there and value)
  end
end
call_many('HSET', documents, set)
call_many('HDEL', documents, removed)
call_many('ZREM', ranks_of(documents), unranked)
call_many('ZADD', ranks_of(documents), ranked)
if rings then
  ring_documents(slot, name, space)
end
return replies
