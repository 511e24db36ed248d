#!lua flags=allow-oom
-- Purpose: counts where a slot's messages stand for a group.
-- KEYS[1] slot: the slot's prefix; what is touched begins with it.
-- ARGV[1] given (now), ARGV[2] kind, ARGV[3] name (group).
-- Reply: flat: epoch, published, waiting, retrying, todo, doing, settled, dead, cancelled, head,
--   floor (-1 where there is none), since when the oldest one is due (-1 where none is). [1] if
--   more has come due than one step promotes: ask again. [-2] if there is no such group.
-- Cost: 16 to 22 commands; 3 more for each further priority, of the 16 lowest that are todo.
-- Promise: it changes nothing but what pulling would do first: what is due goes to todo.
local slot = KEYS[1]
local given, kind, name = ARGV[1], ARGV[2], ARGV[3]
--@include time head places log in_window bring_in
local group = kind == 'stream' and load_group(slot, name, kind) or group_of(slot, name, kind)
local now = time_ms(given)
--@may GET HGET HLEN HMGET LLEN XRANGE XREVRANGE ZCARD ZRANGE ZRANGEBYSCORE
--@may ZADD(group.todo) HINCRBY(group.cursor) ZREM(group.waiting) ZREM(group.retry)
promote(group, now)
local due = next_due(now, { first_of(group.waiting), first_of(group.retry) })
if due == 0 then
  return { 1 }
end
local cursor = redis.call('HMGET', group.cursor, 'epoch', 'published', 'acked', 'cancelled',
  'parked', 'running', 'floor', 'read', 'base', 'settled', 'max_parked', 'behind')
if name ~= '' and not cursor[1] then
  return { -2 }
end
local function number(text)
  return tonumber(text or 0)
end
local function card(key)
  return redis.call('ZCARD', key)
end
local retrying, doing, todo = card(group.retry), card(group.doing), card(group.todo)
local waiting, dead = card(group.waiting) + retrying, card(group.dead)
local head = number(redis.call('GET', slot .. 'head'))
local kept_back = card(slot .. 'later') + redis.call('HLEN', slot .. 'letters')
local settled, cancelled = number(cursor[3]), number(cursor[4])
local published, floor, oldest = number(cursor[2]), -1, -1
local function note_due(ms)
  if ms and (oldest < 0 or ms < oldest) then
    oldest = ms
  end
end
local joins = redis.call('ZRANGE', slot .. 'later', 0, 0, 'WITHSCORES')[2]
if joins and tonumber(joins) <= now then
  note_due(tonumber(joins))
end
local rank, most_ranks = '+inf', 16
while most_ranks > 0 do
  most_ranks = most_ranks - 1
  local last = redis.call('ZRANGE', group.todo, rank, '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 1,
    'WITHSCORES')
  if not last[1] then
    break
  end
  local first = redis.call('ZRANGEBYSCORE', group.todo, last[2], last[2], 'LIMIT', 0, 1)[1]
  local since = struct.unpack('>I8', first)
  if since == 0 then -- it left a stream's line, and goes before everything else
    local value = redis.call('HGET', group.body, string.sub(first, 17))
    since = value and unpack_head(value).published
  end
  note_due(since)
  rank = '(' .. last[2]
end
if kind == 'stream' then
  if cursor[11] then
    local parked, running = number(cursor[5]), number(cursor[6])
    waiting = waiting + parked
    todo = todo + number(cursor[12]) - parked - (running - doing)
    doing = running
  end
  local read = number(cursor[8])
  floor = number(cursor[7])
  published = head - number(cursor[9])
  todo = todo + head - read
  doing = doing + in_window(floor, read, cursor[10])
  if read < head then
    local entry = entry_at(slot .. 'log', read)
    local fields = entry and fields_of(entry) or {}
    note_due(tonumber(fields.t or fields.p))
  end
elseif kind == 'ordered' then
  waiting = waiting + number(cursor[5])
  doing = number(cursor[6])
  todo = published - settled - cancelled - dead - waiting - doing
else
  todo = todo + redis.call('HLEN', group.following)
end
return { cursor[1] or '0000000000000000', published + kept_back, waiting + kept_back, retrying,
  todo, doing, settled, dead, cancelled, head, floor, oldest }
