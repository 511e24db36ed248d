-- Heads of subjects. A head's value in `body` is its meta and its envelope; what was handed out
-- before also has a state in `tries`.
--   meta   '>I8I8i4I8'   due, seq, priority, published at (ms)
--   state  '>I8I4I4I2I1' seq, tries, lost, given, length of the receipt; receipt; last error,
--          and from its second line on its traceback
local META, META_SIZE = '>I8I8i4I8', 28
local STATE, STATE_SIZE = '>I8I4I4I2I1', 19
local EMPTY = string.char(0)

-- A group in a slot; of a stream with its cursor's `max_parked`, which says whether it keeps order,
-- and whether messages may stand behind its heads: also since it did once.
local function group_of(slot, name, kind, max_parked)
  local at = slot .. 'g:' .. name .. ':'
  return {
    at = at, kind = kind, slot = slot,
    backlog = kind == 'ordered' or (max_parked and true), max_parked = tonumber(max_parked or 0),
    cursor = at .. 'cursor', waiting = at .. 'waiting', retry = at .. 'retry',
    todo = at .. 'todo', doing = at .. 'doing', body = at .. 'body', tries = at .. 'tries',
    following = at .. 'next', dead = at .. 'dead', graves = at .. 'graves',
    named = at .. 'named', keyed = at .. 'keyed',
  }
end

-- A group as its cursor has it, and its epoch; without one there is no such group.
local function load_group(slot, name, kind)
  local epoch, max_parked =
    unpack(redis.call('HMGET', slot .. 'g:' .. name .. ':cursor', 'epoch', 'max_parked'))
  return group_of(slot, name, kind, max_parked), epoch
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
