#!lua
-- Purpose: writes down a part of a slot as it stood in another store.
-- KEYS[1] slot: the slot's prefix; what is touched begins with it.
-- ARGV[1] given (now), ARGV[2] kind, ARGV[3] name (group; '' for what no group has claimed, and
--   for what is no group's), ARGV[4] section, ARGV[5] token (under which the slot is open; ''
--   for one in use), ARGV[6] following (under which it is open then); then the members of the
--   section, each of fields behind their lengths ('>I4').
--   line: first offset, how many messages, their envelopes, when they were published.
--   later: due, member. held: when its gap is passed, member, head's value.
--   heads: subject, value, state. behind: subject, value. dead: when it died, member, record.
--   marks: mark, until when. sequences: key, number. head: number. position: field, value.
-- Reply: 0. -2 if there is no such group.
-- Cost: 4 commands, and 1 to 5 for each, for a head up to 11.
-- Promise: one atomic step; what stands there already is written over, or left alone.
local slot = KEYS[1]
local given, kind, name, section = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local token, following = ARGV[5], ARGV[6]
--@include time closed head places text dead log
if token == '' then
  if is_closed(slot) then
    return refusal()
  end
else
  local opened = redis.call('GET', slot .. 'opened')
  if opened ~= token and opened ~= following then
    return refusal()
  end
end
local group = load_group(slot, name, kind)
if name ~= '' and redis.call('EXISTS', group.cursor) == 0 then
  return -2
end
local now = time_ms(given)

local function fields_in(member)
  local found, at = {}, 1
  while at < #member do
    local size = struct.unpack('>I4', member, at)
    found[#found + 1] = string.sub(member, at + 4, at + 3 + size)
    at = at + 4 + size
  end
  return found
end

-- Appends to the log what it has not; times of joining grow.
local function append(first, size, envelopes, published)
  first, size, published = tonumber(first), tonumber(size), tonumber(published)
  local head, at = tonumber(redis.call('GET', slot .. 'head') or 0), 1
  if first + size <= head then
    return
  end
  while first < head do
    first, size, at = first + 1, size - 1, skip(envelopes, at) or #envelopes + 1
  end
  if redis.call('EXISTS', slot .. 'log') == 0 then
    redis.call('SET', slot .. 'first', string.format('%.0f', first))
  end
  local joined = math.min(published, now)
  local last = redis.call('XREVRANGE', slot .. 'log', '+', '-', 'COUNT', 1)[1]
  if last then
    joined = math.max(joined, tonumber(fields_of(last).t))
  end
  redis.call('XADD', slot .. 'log', string.format('%.0f-%d', first, size),
    'b', string.sub(envelopes, at),
    't', string.format('%.0f', joined), 'p', string.format('%.0f', published))
  redis.call('SET', slot .. 'head', string.format('%.0f', first + size))
end

-- Puts a head where its due time says, or among those in doing, in place of the one that is there.
local function put_head(subject, value, state)
  local old = load_head(group, subject)
  if old and old.receipt ~= '' then
    redis.call('ZREM', group.doing, subject)
    count(group, 'running', group.backlog and -old.given or 0)
  elseif old then
    take_out(group, subject, old)
  end
  local head = unpack_head(value)
  read_state(head, state ~= '' and state)
  redis.call('HSET', group.body, subject, value)
  write_state(group, subject, head)
  if head.receipt == '' then
    place(group, subject, head, now)
  else
    redis.call('ZADD', group.doing, 1, subject)
    count(group, 'running', group.backlog and head.given or 0)
  end
end

-- A stream's group that keeps order no more, and has parked messages still.
local function had_kept_order()
  local running = 0
  for _, subject in ipairs(redis.call('ZRANGE', group.doing, 0, -1)) do
    running = running + load_head(group, subject).given
  end
  redis.call('HSET', group.cursor, 'max_parked', 0, 'running', running)
  group.backlog = true
end

-- The numbers of those behind a head, where a message is not simply the next one.
local standing = {}
local function stands_behind(subject, key, seq)
  if not standing[subject] then
    standing[subject] = {}
    for _, value in ipairs(redis.call('LRANGE', key, 0, -1)) do
      standing[subject][unpack_head(value).seq] = true
    end
  end
  return standing[subject][seq]
end

-- Puts a message behind a head, unless it stands there.
local function put_behind(subject, value)
  if kind == 'stream' and not group.backlog then
    had_kept_order()
  end
  if not group.backlog then
    redis.call('HSET', group.following, subject, value)
    return
  end
  local key, seq = behind_of(group, subject), unpack_head(value).seq
  local last = redis.call('LINDEX', key, -1)
  if not last or unpack_head(last).seq < seq or not stands_behind(subject, key, seq) then
    redis.call('RPUSH', key, value)
    count_behind(group, 1)
    if standing[subject] then
      standing[subject][seq] = true
    end
    local waits = redis.call('ZSCORE', group.waiting, subject)
      or redis.call('ZSCORE', group.retry, subject)
    count(group, 'parked', waits and 1 or 0)
  end
end

local put = {
  line = append,
  later = function(due, member)
    redis.call('ZADD', slot .. 'later', due, member)
  end,
  held = function(passed, member, value)
    redis.call('HSET', slot .. 'letters', member, value)
    redis.call('ZADD', slot .. 'held', 0, member)
    redis.call('ZADD', slot .. 'gaps', passed, member)
  end,
  heads = put_head,
  behind = put_behind,
  dead = function(died, member, record)
    redis.call('ZADD', group.dead, died, member)
    redis.call('HSET', group.graves, member, record)
    name_dead_letters(group, { member }, { record })
  end,
  marks = function(mark, until_ms)
    redis.call('ZADD', slot .. 'ids', until_ms, mark)
  end,
  sequences = function(key, number)
    redis.call('HSET', slot .. 'sequences', key, number)
  end,
  head = function(number)
    if tonumber(number) > tonumber(redis.call('GET', slot .. 'head') or 0) then
      redis.call('SET', slot .. 'head', number)
      if kind == 'stream' and redis.call('EXISTS', slot .. 'log') == 0 then
        redis.call('SET', slot .. 'first', number)
      end
    end
  end,
  position = function(field, value)
    redis.call('HSET', group.cursor, field, value)
  end,
}
for i = 7, #ARGV do
  put[section](unpack(fields_in(ARGV[i])))
end
if token ~= '' then
  redis.call('SET', slot .. 'opened', following)
end
return 0
