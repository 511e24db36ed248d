-- Heads of subjects. A head's value in `body` is its meta and its envelope; what was handed out
-- before also has a state in `tries`.
--   meta   '>I8I8i4I8'   due, seq, priority, published at (ms)
--   state  '>I8I4I4I2I1' seq, tries, lost, given, length of the receipt; receipt; last error
local META, META_SIZE = '>I8I8i4I8', 28
local STATE, STATE_SIZE = '>I8I4I4I2I1', 19
local EMPTY = string.char(0)

local function group_of(slot, name, kind)
  local at = slot .. 'g:' .. name .. ':'
  return {
    at = at, kind = kind, slot = slot,
    cursor = at .. 'cursor', waiting = at .. 'waiting', retry = at .. 'retry',
    todo = at .. 'todo', doing = at .. 'doing', body = at .. 'body', tries = at .. 'tries',
    following = at .. 'next', dead = at .. 'dead', graves = at .. 'graves',
  }
end

local function behind_of(group, subject)
  return group.at .. 'behind:' .. subject
end

local function unpack_head(value)
  local due, seq, priority, published = struct.unpack(META, value)
  return { due = due, seq = seq, priority = priority, published = published,
           envelope = string.sub(value, META_SIZE + 1), tries = 0, lost = 0, given = 0,
           receipt = '', error = '' }
end

local function pack_head(head)
  return struct.pack(META, head.due, head.seq, head.priority, head.published) .. head.envelope
end

local function read_state(head, state)
  if not state then
    return
  end
  local _, tries, lost, given, size = struct.unpack(STATE, state)
  head.tries, head.lost, head.given = tries, lost, given
  head.receipt = string.sub(state, STATE_SIZE + 1, STATE_SIZE + size)
  head.error = string.sub(state, STATE_SIZE + size + 1)
end

local function load_head(group, subject)
  local value = redis.call('HGET', group.body, subject)
  if not value then
    return nil
  end
  local head = unpack_head(value)
  read_state(head, redis.call('HGET', group.tries, subject))
  return head
end

local function pack_state(head)
  return struct.pack(STATE, head.seq, head.tries, head.lost, head.given, #head.receipt)
    .. head.receipt .. head.error
end

local function write_state(group, subject, head)
  if head.tries > 0 or head.lost > 0 or head.error ~= '' then
    redis.call('HSET', group.tries, subject, pack_state(head))
  else
    redis.call('HDEL', group.tries, subject)
  end
end

-- The score of a subject in `todo`, and its member: '>I8I8' due, seq; subject.
local function rank_of(kind, priority)
  return (kind == 'ordered' or kind == 'priority') and -priority or 0
end

local function member_of(head, subject)
  return struct.pack('>I8I8', head.due, head.seq) .. subject
end

local function length_behind(group, subject)
  return group.kind == 'ordered' and redis.call('LLEN', behind_of(group, subject)) or 0
end

-- Counts of the cursor: what stands behind waiting heads is `parked`; `running` is what of ordered
-- subjects is handed out.
local function count(group, field, by)
  if by ~= 0 then
    redis.call('HINCRBY', group.cursor, field, by)
  end
end

-- Whether a head was placed: who sleeps does not know of it, nor when it is due.
local has_placed = false

-- Puts a head that is not handed out where its due time says.
local function place(group, subject, head, now)
  has_placed = true
  if head.due <= now then
    redis.call('ZADD', group.todo, rank_of(group.kind, head.priority), member_of(head, subject))
  else
    local key = head.tries > 0 and group.retry or group.waiting
    redis.call('ZADD', key, string.format('%.0f', head.due), subject)
    count(group, 'parked', length_behind(group, subject))
  end
end

-- Takes a head that is not handed out from where it stands.
local function take_out(group, subject, head)
  if redis.call('ZREM', group.todo, member_of(head, subject)) == 0 then
    redis.call('ZREM', group.waiting, subject)
    redis.call('ZREM', group.retry, subject)
    count(group, 'parked', -length_behind(group, subject))
  end
end

-- The due time when an equal subject is published again.
local function due_again(kind, old, new, now)
  if kind == 'merge' then
    return old
  end
  if kind == 'priority' and new <= now then
    return math.min(old, new)
  end
  return new
end

-- Puts a newer message of an equal subject in place of a head.
local function replace(group, head, newer, now)
  head.due = due_again(group.kind, head.due, newer.due, now)
  head.priority, head.published, head.envelope = newer.priority, newer.published, newer.envelope
  head.tries, head.lost, head.error = 0, 0, ''
end

-- Takes a head out of doing; a next round replaces it.
local function come_back(group, subject, head, now)
  redis.call('ZREM', group.doing, subject)
  if group.kind == 'ordered' then
    count(group, 'running', -head.given)
  end
  head.receipt, head.given = '', 0
  local following = redis.call('HGET', group.following, subject)
  if following then
    replace(group, head, unpack_head(following), now)
    redis.call('HDEL', group.following, subject)
    count(group, 'published', -1)
  end
  redis.call('HSET', group.body, subject, pack_head(head))
  write_state(group, subject, head)
  place(group, subject, head, now)
end

-- Puts the next message in place of a head that is settled, or removes the subject; `keeps` is how
-- many messages of its run are still handed out. Answers the new head, or nil.
local function follow(group, subject, head, now, keeps)
  local value
  if group.kind == 'ordered' then
    value = redis.call('LPOP', behind_of(group, subject))
    count(group, 'running', keeps - head.given)
  else
    value = redis.call('HGET', group.following, subject)
    if value then
      redis.call('HDEL', group.following, subject)
    end
  end
  if keeps == 0 then
    redis.call('ZREM', group.doing, subject)
  end
  if not value then
    redis.call('HDEL', group.body, subject)
    redis.call('HDEL', group.tries, subject)
    return nil
  end
  local new = unpack_head(value)
  if group.kind == 'ordered' then
    new.due = math.max(now, new.due)
  end
  if keeps > 0 then
    new.tries, new.given, new.receipt = 1, keeps, head.receipt
  end
  redis.call('HSET', group.body, subject, pack_head(new))
  write_state(group, subject, new)
  if keeps == 0 then
    place(group, subject, new, now)
  end
  return new
end

-- Writes a message among the dead.
local function bury(group, subject, head, now, error, traceback)
  local member = struct.pack('>I8', head.seq)
  local facts = cmsgpack.pack({ group.kind ~= 'stream' and subject, head.priority, head.tries, error, traceback })
  redis.call('ZADD', group.dead, string.format('%.0f', now), member)
  redis.call('HSET', group.graves, member,
    struct.pack('>I8I4', head.published, #facts) .. facts .. head.envelope)
end

-- Takes heads out of doing whose worker is gone.
local function lose(group, subjects, now)
  for _, subject in ipairs(subjects) do
    local head = load_head(group, subject)
    head.lost = head.lost + 1
    if group.kind == 'stream' then
      head.due = 0
    end
    come_back(group, subject, head, now)
  end
  return #subjects
end
