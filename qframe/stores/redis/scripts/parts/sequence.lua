-- What several producers send out of order is released in sequence. `sequences` has each key's next
-- number; a message that is held has the member <key> NUL <number '>I8'>: in `held` by name, in
-- `gaps` by when its gap is passed, in `letters` with its meta and envelope.
local function held_member(subject, number)
  return subject .. EMPTY .. struct.pack('>I8', number)
end

local function next_number(slot, subject)
  return tonumber(redis.call('HGET', slot .. 'sequences', subject) or 1)
end

local function set_next(slot, subject, number)
  redis.call('HSET', slot .. 'sequences', subject, string.format('%.0f', number))
end

-- Takes out those of a key that follow without a gap. Of very many the rest is taken for overdue at
-- once, and the next pull goes on with it.
local function in_line(slot, subject, going, now)
  local number = next_number(slot, subject)
  while true do
    local member = held_member(subject, number)
    local value = redis.call('HGET', slot .. 'letters', member)
    if not value then
      break
    end
    if #going >= 500 then
      redis.call('ZADD', slot .. 'gaps', string.format('%.0f', now), member)
      break
    end
    redis.call('HDEL', slot .. 'letters', member)
    redis.call('ZREM', slot .. 'held', member)
    redis.call('ZREM', slot .. 'gaps', member)
    local head = unpack_head(value)
    head.due = head.published
    going[#going + 1] = { subject = subject, head = head }
    number = number + 1
  end
  set_next(slot, subject, number)
end

-- Goes on at the lowest held message of a key; returns 1 if there was a gap before it, else 0.
local function pass_gap(slot, subject, going, now)
  local lowest = redis.call('ZRANGEBYLEX', slot .. 'held', '[' .. subject .. EMPTY,
    '(' .. subject .. string.char(1), 'LIMIT', 0, 1)[1]
  local number = struct.unpack('>I8', lowest, #lowest - 7)
  local passed = number == next_number(slot, subject) and 0 or 1
  set_next(slot, subject, number)
  in_line(slot, subject, going, now)
  return passed
end

-- Whether a held message of a key has waited for long enough. While nobody pulls there may be many
-- that have, of other keys, or many of this key that have not: the fewer are looked through.
local function has_overdue(slot, subject, now)
  local gaps, text = slot .. 'gaps', string.format('%.0f', now)
  local from, to = '[' .. subject .. EMPTY, '(' .. subject .. string.char(1)
  local late = redis.call('ZCOUNT', gaps, '-inf', text)
  if late == 0 then
    return false
  end
  if late < redis.call('ZLEXCOUNT', slot .. 'held', from, to) then
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', gaps, '-inf', text)) do
      if string.sub(member, 1, #member - 9) == subject then
        return true
      end
    end
    return false
  end
  for _, member in ipairs(redis.call('ZRANGEBYLEX', slot .. 'held', from, to)) do
    if tonumber(redis.call('ZSCORE', gaps, member)) <= now then
      return true
    end
  end
  return false
end

-- What goes on when a numbered message arrives: it and others, or nothing yet.
local function release(slot, subject, head, number, now, gap_timeout, going)
  while true do
    local following = next_number(slot, subject)
    local member = held_member(subject, number)
    if number < following or redis.call('HEXISTS', slot .. 'letters', member) == 1 then
      going[#going + 1] = { subject = subject, head = head, arrives = true }
      return
    end
    if number == following then
      set_next(slot, subject, number + 1)
      going[#going + 1] = { subject = subject, head = head, arrives = true }
      in_line(slot, subject, going, now)
      return
    end
    if #going >= 500 or not has_overdue(slot, subject, now) then
      redis.call('HSET', slot .. 'letters', member, pack_head(head))
      redis.call('ZADD', slot .. 'held', 0, member)
      redis.call('ZADD', slot .. 'gaps', string.format('%.0f', now + gap_timeout), member)
      return
    end
    pass_gap(slot, subject, going, now)
  end
end

-- What goes on because gaps have been waited for long enough; returns how many gaps were passed.
local function pass_overdue(slot, now, going)
  local passed = 0
  while #going < 500 do
    local late = redis.call('ZRANGEBYSCORE', slot .. 'gaps', '-inf', string.format('%.0f', now),
      'LIMIT', 0, 1)[1]
    if not late then
      break
    end
    passed = passed + pass_gap(slot, string.sub(late, 1, #late - 9), going, now)
  end
  return passed
end
