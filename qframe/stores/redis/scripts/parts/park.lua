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

-- Puts messages behind the last one of a subject.
local function push_behind(group, subject, values)
  call_many('RPUSH', behind_of(group, subject), values)
  count_behind(group, #values)
  if redis.call('ZSCORE', group.retry, subject) or redis.call('ZSCORE', group.waiting, subject) then
    count(group, 'parked', #values)
  end
end

-- Puts a message that is earlier than the last of its subject in its place; returns whether it is
-- the head.
local function push_between(group, subject, coming, stay, now)
  local head, behind = load_head(group, subject), behind_of(group, subject)
  local line = redis.call('LRANGE', behind, 0, -1)
  stay = stay and math.min(1, head.given) or 0
  local place_in_line = #line + 1
  while place_in_line > stay do
    local before = place_in_line > 1 and seq_of(line[place_in_line - 1]) or head.seq
    if before < coming.seq then
      break
    end
    place_in_line = place_in_line - 1
  end
  if place_in_line > 0 then
    table.insert(line, place_in_line, pack_behind(coming))
    redis.call('DEL', behind)
    push_behind(group, subject, line)
    count_behind(group, 1 - #line)
    if redis.call('ZSCORE', group.retry, subject) or redis.call('ZSCORE', group.waiting, subject)
    then
      count(group, 'parked', 1 - #line)
    end
    if head.given > place_in_line then
      count(group, 'running', place_in_line - head.given)
      head.given = place_in_line
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
  table.insert(line, 1, pack_behind(head))
  redis.call('DEL', behind)
  call_many('RPUSH', behind, line)
  count_behind(group, 1)
  redis.call('HSET', group.body, subject, pack_head(coming))
  write_state(group, subject, coming)
  place(group, subject, coming, now)
  return true
end

-- Queues a message that left the line in its place by offset; returns whether it is the head. It
-- passes by a head that is handed out, unless that is to stay.
local function park(group, subject, coming, now, stay)
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
