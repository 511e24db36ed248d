#!lua
-- Purpose: queues messages under their subjects for every group of a slot.
-- KEYS[1] slot: the slot's prefix; what is touched begins with it.
-- ARGV[1] given (now), ARGV[2] declared, ARGV[3] window, ARGV[4] limit, ARGV[5] gap timeout,
--   ARGV[6] mark; then for each message three: how it comes, its subject, its envelope.
--   `declared` is the topic's kind, and with how many slots it was declared. `how` is empty for a
--   message that is due now under the mark of ARGV[6]; else msgpack of [mark, other mark, at,
--   delay, priority, sequence, series, place]: the mark of a series, and its time.
-- Reply: a letter for each message: s stored, m merged, r replaced, d duplicate, f full. A number
--   where these are too many for one step, as the slot has many groups: none of it is stored, and
--   so many are to be sent at a time, each under its own id as its mark. The error CLOSED if the
--   slot is being split, or was, or the topic was declared anew otherwise: none of it is stored.
-- Cost: for new subjects 7 commands and 4 for each group; 1 to 8 for each message and group that
--   meets an equal; 6 for each pull that stands there and is answered; 2 to ring.
-- Promise: one atomic step; a message whose mark is remembered adds nothing.
local slot = KEYS[1]
local given, declared, window = ARGV[1], ARGV[2], tonumber(ARGV[3])
local limit, gap_timeout, mark = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
local kind = string.match(declared, '^%a*')
--@include time many bell closed marks head places arrive
-- How many messages, for each group one, are stored in one step: it takes some 0.1 s.
local MOST, PARTED = 20000, '/parted'
if is_closed(slot, declared) then
  return refusal()
end
local now = time_ms(given)
local groups = collecting(slot, kind)
local size, named = (#ARGV - 6) / 3, 0
for i = 7, #ARGV, 3 do
  named = named + (ARGV[i] ~= '' and 1 or 0)
end
local is_plain = limit == 0 and named == 0
local most = math.max(1, math.floor(MOST / math.max(1, #groups)))
-- A batch that was too much for one step is so for ever: its messages have marks of their own.
local parted = size > 1 and named < size and mark .. PARTED or nil

local function part()
  --@may ZADD
  if parted then
    remember(slot, { [parted] = true }, now + window)
  end
  return tostring(most)
end

-- One that was stored whole, when there were fewer groups, is known by its mark alone.
if size > most and not (named < size and known_marks(slot, { mark }, now)[mark]) then
  return part()
end
if is_plain then
  -- One batch that is due now, as nearly always: its messages' values are made once for all groups.
  local known = known_marks(slot, { mark, parted }, now)
  if known[mark] then
    return string.rep('d', size)
  elseif parted and known[parted] then
    return part()
  end
  local asleep = redis.call('GET', slot .. 'asleep')
  if asleep then
    --@may
  elseif kind == 'ordered' then
    --@may HINCRBY HMGET HSET RPUSH ZADD ZSCORE
  else
    --@may HDEL HGET HINCRBY HMGET HSET ZADD ZREM
  end
  local subjects, values, outcomes = {}, {}, {}
  local seq = redis.call('INCRBY', slot .. 'head', size) - size
  for i = 1, size do
    subjects[i] = ARGV[3 * i + 5]
    values[i] = struct.pack(META, now, seq + i - 1, 0, now) .. ARGV[3 * i + 6]
  end
  for _, group in ipairs(groups) do
    arrive_many(group, subjects, values, {}, now, outcomes)
  end
  redis.call('ZADD', slot .. 'ids', string.format('%.0f', now + window), mark)
  if asleep and (size > 1 or asleep == '1' or outcomes[1] ~= 's') then
    ring(slot)
  elseif asleep then
    --@include answer
    local subject, member = subjects[1], string.sub(values[1], 1, 16) .. subjects[1]
    answer(slot, asleep, now, ARGV[9], function(pull)
      local group = group_of(slot, pull.name, kind)
      -- Nothing else is due, or the pull would not stand. The message may be behind its subject's
      -- head, or have taken its place.
      if redis.call('HGET', group.cursor, 'epoch') ~= pull.epoch
          or redis.call('ZREM', group.todo, member) == 0 then
        return false
      end
      if not send(slot, pull, seq, now, pull.receipt, subject, ARGV[9]) then
        redis.call('ZADD', group.todo, 0, member)
        return false
      end
      redis.call('ZADD', group.doing, pull.lease, subject)
      redis.call('HSET', group.tries, subject, string.sub(member, 9, 16)
        .. struct.pack('>I4I4I2I1', 1, 0, 1, #pull.receipt) .. pull.receipt)
      count(group, 'running', group.backlog and 1 or 0)
      return true
    end)
  end
  return table.concat(outcomes)
end

--@may
--@include sequence room

local marks, messages = { mark ~= '' and mark or nil, parted }, {}
for i = 7, #ARGV, 3 do
  local head = { due = now, seq = 0, priority = 0, published = now, envelope = ARGV[i + 2],
                 tries = 0, lost = 0, given = 0, receipt = '', error = '' }
  local message = { subject = ARGV[i + 1], head = head, mark = mark }
  if ARGV[i] ~= '' then
    local own, other, at, delay, priority, sequence, series, place =
      unpack(cmsgpack.unpack(ARGV[i]))
    message.mark, message.other, message.sequence = own, other, sequence
    message.series, message.place = series, place
    head.due, head.priority = at or now + delay, priority
    marks[#marks + 1] = own
    if other then
      marks[#marks + 1] = other
    end
    if series then
      marks[#marks + 1] = series
    end
  end
  messages[#messages + 1] = message
end

local known = known_marks(slot, marks, now)
if parted and known[parted] then
  return part()
end
local outcomes, new, full, going, place_of = {}, {}, false, {}, {}
for i, message in ipairs(messages) do
  local series = message.series
  if known[message.mark] or (message.other and known[message.other])
      or not has_place(known, message) then
    outcomes[i] = 'd'
  elseif limit > 0 and adds(kind, groups, message.subject)
      and (full or not has_room(slot, groups, limit)) then
    outcomes[i], full = 'f', true
  else
    new[message.mark] = true
    if series then
      known[series], new[series] = message.place, message.place
    end
    outcomes[i] = 's'
    local before = #going
    if message.sequence then
      release(slot, message.subject, message.head, message.sequence, now, gap_timeout, going)
    else
      going[before + 1] = { subject = message.subject, head = message.head, arrives = true }
    end
    for j = before + 1, #going do
      place_of[j] = going[j].arrives and i or nil
    end
    if limit > 0 then
      for j, outcome in ipairs(arrive(slot, kind, going, now)) do
        outcomes[place_of[j] or #messages + 1] = outcome
      end
      going, place_of = {}, {}
    end
  end
end
if #going > 0 then
  local seq = redis.call('INCRBY', slot .. 'head', #going) - #going
  local subjects, values, heads, found = {}, {}, {}, {}
  for j, each in ipairs(going) do
    each.head.seq = seq + j - 1
    subjects[j], values[j], heads[j] = each.subject, pack_head(each.head), each.head
  end
  for _, group in ipairs(groups) do
    arrive_many(group, subjects, values, heads, now, found)
  end
  for j, outcome in ipairs(found) do
    if place_of[j] then
      outcomes[place_of[j]] = outcome
    end
  end
end
outcomes[#messages + 1] = nil
if next(new) then
  remember(slot, new, now + window)
  ring(slot)
end
return table.concat(outcomes)
