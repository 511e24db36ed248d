#!lua flags=allow-oom
-- Purpose: puts one place of a group right, if it is still wrong.
-- KEYS[1] slot: the slot's prefix; what is touched begins with it.
-- ARGV[1] given (now), ARGV[2] kind, ARGV[3] name (group), ARGV[4] part (window, subject, dead or
--   count), ARGV[5] what (a subject, the number of a dead letter, or how often the counts were
--   mended before), ARGV[6] member (one found in `todo` that may be another's; the lead to a dead
--   letter; or by how much each count changes, as `acked -1 cancelled 0`; or '').
-- Reply: what was done: '' if nothing; lease, next, gone, place, cancelled, buried, named,
--   counted; -2 if there is no such group.
-- Cost: 5 to 19 commands.
-- Promise: one atomic step; no message is removed, and none called settled.
local slot = KEYS[1]
local given, kind, name, part, what, member =
  ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
--@include time bell closed head places text dead
local NOBODY = 'repaired'
if is_closed(slot) then
  return refusal()
end
local group = load_group(slot, name, kind)
if name ~= '' and redis.call('EXISTS', group.cursor) == 0 then
  return -2
end
local now = time_ms(given)

-- What is in hand of nobody gets a lease that has ended: the next pull takes it back.
local function mend_window()
  local cursor = redis.call('HMGET', group.cursor, 'floor', 'read', 'receipt', 'lease')
  local receipt, lease = cursor[3] or '', tonumber(cursor[4] or 0)
  if tonumber(cursor[1] or 0) >= tonumber(cursor[2] or 0) or (receipt ~= '' and lease > 0) then
    return ''
  end
  redis.call('HSET', group.cursor, 'receipt', receipt ~= '' and receipt or NOBODY, 'lease', 1)
  return 'lease'
end

-- The member of `todo` that is not the head's own.
local function drop_stray(own)
  if member == '' or member == own or string.sub(member, 17) ~= what then
    return false
  end
  return redis.call('ZREM', group.todo, member) == 1
end

local function mend_headless()
  local was = (drop_stray('') and 1 or 0) + redis.call('ZREM', group.waiting, what)
    + redis.call('ZREM', group.retry, what) + redis.call('ZREM', group.doing, what)
    + redis.call('HDEL', group.tries, what)
  local value
  if group.backlog then
    value = redis.call('LPOP', behind_of(group, what))
    count_behind(group, value and -1 or 0)
  else
    value = redis.call('HGET', group.following, what)
    redis.call('HDEL', group.following, what)
  end
  if not value then
    return was > 0 and 'gone' or ''
  end
  local head = unpack_head(value)
  head.due = group.backlog and math.max(now, head.due) or head.due
  redis.call('HSET', group.body, what, pack_head(head))
  place(group, what, head, now)
  return 'next'
end

-- In doing by the lease that it has, or by one that has ended.
local function mend_given(head, own)
  local moved = redis.call('ZREM', group.waiting, what) + redis.call('ZREM', group.retry, what)
    + redis.call('ZREM', group.todo, own)
  moved = moved + redis.call('ZADD', group.doing, 'NX', 1, what)
  local tries = math.max(1, head.tries)
  local run = math.max(1, math.min(head.given, 1 + length_behind(group, what)))
  if tries ~= head.tries or run ~= head.given then
    head.tries, head.given, moved = tries, run, moved + 1
    write_state(group, what, head)
  end
  return moved > 0 and 'place' or ''
end

local function mend_free(head, own, state)
  local stands = 0
  for _, key in ipairs({ group.waiting, group.retry }) do
    stands = stands + (redis.call('ZSCORE', key, what) and 1 or 0)
  end
  stands = stands + (redis.call('ZSCORE', group.todo, own) and 1 or 0)
  local in_doing = redis.call('ZREM', group.doing, what) == 1
  if state and head.given > 0 then
    head.given, in_doing = 0, true
    write_state(group, what, head)
  end
  if not in_doing and stands == 1 then
    return ''
  end
  redis.call('ZREM', group.waiting, what)
  redis.call('ZREM', group.retry, what)
  redis.call('ZREM', group.todo, own)
  place(group, what, head, now)
  return 'place'
end

local function mend_subject()
  local value = redis.call('HGET', group.body, what)
  if not value then
    return mend_headless()
  end
  if #value < META_SIZE then
    return ''
  end
  local own = string.sub(value, 1, 16) .. what
  local was_stray = drop_stray(own)
  local state = redis.call('HGET', group.tries, what)
  if state and #state < STATE_SIZE then
    redis.call('HDEL', group.tries, what)
    state = false
  end
  local head = unpack_head(value)
  read_state(head, state)
  local done = head.receipt ~= '' and mend_given(head, own) or ''
  if head.receipt == '' then
    done = mend_free(head, own, state)
  end
  return done == '' and was_stray and 'place' or done
end

-- A dead letter gets its leads; `member` goes if it is the lead to none.
local function mend_names(number)
  local record = redis.call('HGET', group.graves, number)
  local changed = record and name_dead_letters(group, { number }, { record }) or 0
  local by_id, by_key = nil, nil
  if record then
    by_id, by_key = leads_of(number, record)
  end
  if member ~= by_id then
    changed = changed + redis.call('ZREM', group.named, member)
  end
  if member ~= by_key then
    changed = changed + redis.call('ZREM', group.keyed, member)
  end
  return changed > 0 and 'named' or ''
end

local function mend_dead()
  local number = struct.pack('>I8', tonumber(what))
  if member ~= '' then
    return mend_names(number)
  end
  local stands = redis.call('ZSCORE', group.dead, number)
  local record = redis.call('HEXISTS', group.graves, number) == 1
  if stands and not record then
    redis.call('ZREM', group.dead, number)
    count(group, 'cancelled', 1)
    return 'cancelled'
  end
  if record and not stands then
    redis.call('ZADD', group.dead, string.format('%.0f', now), number)
    return 'buried'
  end
  return ''
end

-- Of two who have found the same difference, one changes the counts.
local function mend_count()
  if (redis.call('HGET', group.cursor, 'mends') or '0') ~= what then
    return ''
  end
  count(group, 'mends', 1)
  for field, by in string.gmatch(member, '(%a+) (-?%d+)') do
    count(group, field, tonumber(by))
  end
  return 'counted'
end

local parts =
  { window = mend_window, subject = mend_subject, dead = mend_dead, count = mend_count }
local done = parts[part]()
if done ~= '' then
  ring(slot)
end
return done
