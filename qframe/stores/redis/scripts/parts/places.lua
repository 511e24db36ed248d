-- Where heads stand: waiting, retry, todo or doing; how they move, are followed, and end.
-- The score of a subject in `todo`, and its member: '>I8I8' due, seq; subject.
local function rank_of(kind, priority)
  return (kind == 'ordered' or kind == 'priority') and -priority or 0
end

local function member_of(head, subject)
  return struct.pack('>I8I8', head.due, head.seq) .. subject
end

local function length_behind(group, subject)
  return group.backlog and redis.call('LLEN', behind_of(group, subject)) or 0
end

-- Counts of the cursor: what stands behind waiting heads is `parked`; `running` is what of subjects
-- with a backlog is handed out; `behind` is what stands behind heads of a stream.
local function count(group, field, by)
  if by ~= 0 then
    return redis.call('HINCRBY', group.cursor, field, by)
  end
end

-- Whether a head was placed: who sleeps does not know of it, nor when it is due.
local has_placed = false

-- Counts what stands behind a stream's heads; its line may be read again once that is little.
local function count_behind(group, by)
  if group.kind == 'stream' and by ~= 0 then
    local behind = count(group, 'behind', by)
    has_placed = has_placed or (behind < group.max_parked and behind - by >= group.max_parked)
  end
end

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
local function requeue(group, subject, head, now)
  redis.call('ZREM', group.doing, subject)
  if group.backlog then
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
-- many messages of its run are still handed out.
local function advance(group, subject, head, now, keeps)
  local value
  if group.backlog then
    value = redis.call('LPOP', behind_of(group, subject))
    count(group, 'running', keeps - head.given)
    count_behind(group, value and -1 or 0)
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
    return
  end
  local new = unpack_head(value)
  if group.backlog then
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
end

-- Takes heads out of doing whose worker is gone; `group.gone` gets them, for a history.
local function lose(group, subjects, now)
  for _, subject in ipairs(subjects) do
    local head = load_head(group, subject)
    if head then
      if group.gone then
        group.gone[#group.gone + 1] = { head.envelope, head.tries, head.receipt }
      end
      head.lost = head.lost + 1
      if group.kind == 'stream' then
        head.due = 0
      end
      requeue(group, subject, head, now)
    else -- somebody else has removed it
      redis.call('ZREM', group.doing, subject)
    end
  end
  return #subjects
end
