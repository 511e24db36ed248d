-- Parked keys: what left a stream's line and has a key, in the order of offsets.
-- The subject of a message that leaves the line: its offset's text, or where the group keeps order
-- its key, behind one more `#` if it looks like an offset and has room for that.
local function subject_of(group, envelope, offset)
  local key
  if group.max_parked > 0 then
    key = select(2, names_of(envelope))
  end
  if not key then
    return string.format('%.0f', offset)
  end
  return (#key < 512 and string.find(key, '^#*[0-9]+$')) and '#' .. key or key
end

local function seq_of(value)
  local _, seq = struct.unpack(META, value)
  return seq
end

-- The offset of the last message of a subject, whose head's value is given.
local function last_seq(group, subject, value)
  return seq_of(redis.call('LRANGE', behind_of(group, subject), -1, -1)[1] or value)
end

-- A message as it stands behind a head, where it has no time.
local function pack_behind(head)
  return struct.pack(META, 0, head.seq, head.priority, head.published) .. head.envelope
end

-- Counts messages that were put behind the head of a subject.
local function count_put(group, subject, many)
  count_behind(group, many)
  if redis.call('ZSCORE', group.retry, subject) or redis.call('ZSCORE', group.waiting, subject) then
    count(group, 'parked', many)
  end
end

-- Puts messages behind the last one of a subject.
local function push_behind(group, subject, values)
  call_many('RPUSH', behind_of(group, subject), values)
  count_put(group, subject, #values)
end

-- How many of a sorted line come before an offset, and the value that follows these, if any does.
local function before_in(behind, offset)
  local low, high, following = 0, redis.call('LLEN', behind), nil
  while low < high do
    local middle = math.floor((low + high) / 2)
    local value = redis.call('LINDEX', behind, middle)
    if seq_of(value) < offset then
      low = middle + 1
    else
      high, following = middle, value
    end
  end
  return low, following
end

-- Puts a value before another one of a line; at its end where there is none.
local function insert_before(behind, following, value)
  if following then
    redis.call('LINSERT', behind, 'BEFORE', following, value)
  else
    redis.call('RPUSH', behind, value)
  end
end

-- Puts a message that is earlier than the last of its subject in its place; returns whether it is
-- the head. Of a long line it reads no more than that takes.
local function push_between(group, subject, coming, stay, now)
  local head, behind = load_head(group, subject), behind_of(group, subject)
  local earlier, following = before_in(behind, coming.seq)
  if earlier > 0 or head.seq < coming.seq or (stay and head.given > 0) then
    insert_before(behind, following, pack_behind(coming))
    count_put(group, subject, 1)
    if head.given > earlier + 1 then
      count(group, 'running', earlier + 1 - head.given)
      head.given = earlier + 1
      write_state(group, subject, head)
    end
    return false
  end
  if head.receipt == '' then
    take_out(group, subject, head)
  else
    redis.call('ZREM', group.doing, subject)
    count(group, 'running', -head.given)
  end
  insert_before(behind, following, pack_behind(head))
  count_behind(group, 1)
  redis.call('HSET', group.body, subject, pack_head(coming))
  write_state(group, subject, coming)
  place(group, subject, coming, now)
  return true
end

-- A message of the log as it leaves the line: due at once, before everything else.
local function leaving(offset, envelope, published)
  return { due = 0, seq = offset, priority = 0, published = published, tries = 0,
           envelope = envelope, lost = 0, given = 0, receipt = '', error = '' }
end

-- Queues a message that left the line in its place by offset; returns whether it is the head. It
-- passes by a head that is handed out, unless that is to stay.
local function park(group, coming, now, stay)
  local subject = subject_of(group, coming.envelope, coming.seq)
  if group.max_parked > 0 then
    local value = redis.call('HGET', group.body, subject)
    if value then
      if last_seq(group, subject, value) > coming.seq then
        return push_between(group, subject, coming, stay, now)
      end
      push_behind(group, subject, { pack_behind(coming) })
      return false
    end
  end
  redis.call('HSET', group.body, subject, pack_head(coming))
  write_state(group, subject, coming)
  place(group, subject, coming, now)
  return true
end
