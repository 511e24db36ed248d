#!lua flags=allow-oom
-- Purpose: ends deliveries of subjects, and of what left a stream's line.
-- KEYS[1] slot: the slot's prefix; what is touched begins with it.
-- ARGV[1] given (now), ARGV[2] kind, ARGV[3] name (group), ARGV[4] epoch; then for each settlement
--   four: how it ends, subject, seq, receipt. `how` is empty for an ack; else msgpack of [verdict,
--   delay, at, error, traceback]. At last, where a history is kept, msgpack of a note for each.
-- Reply: a letter for each: s settled, t stale (changed nothing). -2 if there is no such group.
-- Cost: 8 commands for any number of acks, 7 of what left a stream; for ordered, and where order
--   is or was kept, 4, and 5 to 8 for each subject; 7 to 12 for each other end; 3 more for a
--   history.
-- Promise: one atomic step; nothing ends without the epoch and the receipt in force.
local slot = KEYS[1]
local given, kind, name, epoch = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
--@include time many bell head places
local group, owner = load_group(slot, name, kind)
if not owner then
  return -2
end
local total = math.floor((#ARGV - 4) / 4)
if owner ~= epoch or epoch == '0000000000000000' then
  return string.rep('t', total)
end
local now = time_ms(given)
local replies, acked = {}, 0

-- Settles one that is not simply acknowledged, with what is stored at this moment.
local function settle_one(subject, seq, receipt, how)
  local head = load_head(group, subject)
  if not head or head.receipt ~= receipt or receipt == '' then
    return 't'
  end
  local verdict, delay, at, error, traceback = 'ack', 0, false, '', false
  if how ~= '' then
    verdict, delay, at, error, traceback = unpack(cmsgpack.unpack(how))
  end
  if seq ~= head.seq then
    if verdict ~= 'release' or head.given < 2 then
      return 't'
    end
    local run = redis.call('LRANGE', behind_of(group, subject), 0, head.given - 2)
    for i, value in ipairs(run) do
      local _, other = struct.unpack(META, value)
      if other == seq then
        count(group, 'running', i - head.given)
        head.given = i
        write_state(group, subject, head)
        return 's'
      end
    end
    return 't'
  end
  if verdict == 'ack' then
    acked = acked + 1
    advance(group, subject, head, now, head.given - 1)
  elseif verdict == 'dead' then
    --@include text dead
    add_dead_letter(group, subject, head, now, error, traceback)
    advance(group, subject, head, now, head.given - 1)
  elseif verdict == 'retry' then
    head.due, head.lost, head.error = at or now + delay, 0, error or ''
    requeue(group, subject, head, now)
  else
    head.tries = head.tries - 1
    if kind == 'stream' then
      head.due = 0
    end
    requeue(group, subject, head, now)
  end
  return 's'
end

-- Acknowledges subjects that have nothing behind them: all in one go.
local function finish(subjects)
  if #subjects > 0 then
    call_many('ZREM', group.doing, subjects)
    call_many('HDEL', group.tries, subjects)
    call_many('HDEL', group.body, subjects)
  end
end

-- Acknowledges the first `most` of a subject's run, which stand from ARGV[i] on; returns how many
-- it could.
local function ack_run(subject, state, receipt, i, most)
  local seq, _, _, run, size = struct.unpack(STATE, state)
  if string.sub(state, STATE_SIZE + 1, STATE_SIZE + size) ~= receipt
      or seq ~= tonumber(ARGV[i + 2]) then
    return 0
  end
  most = math.min(most, run)
  local behind = behind_of(group, subject)
  local following = redis.call('LRANGE', behind, 0, most - 1)
  local done = 1
  while done < most do
    local _, other = struct.unpack(META, following[done])
    if other ~= tonumber(ARGV[i + 4 * done + 2]) then
      break
    end
    done = done + 1
  end
  local value = following[done]
  count(group, 'running', -done)
  count_behind(group, value and -done or 1 - done)
  if not value then
    finish({ subject })
    if done > 1 then
      redis.call('DEL', behind)
    end
    return done
  end
  redis.call('LPOP', behind, done)
  local head = unpack_head(value)
  head.due = math.max(now, head.due)
  redis.call('HSET', group.body, subject, pack_head(head))
  if run > done then
    head.tries, head.given, head.receipt = 1, run - done, receipt
    write_state(group, subject, head)
  else
    redis.call('ZREM', group.doing, subject)
    redis.call('HDEL', group.tries, subject)
    place(group, subject, head, now)
  end
  return done
end

local subjects = {}
for i = 6, #ARGV, 4 do
  subjects[#subjects + 1] = ARGV[i]
end
local states = read_many('HMGET', group.tries, subjects)
local rounds = kind ~= 'ordered' and kind ~= 'stream'
  and read_many('HMGET', group.following, subjects) or {}
local touched, finished = {}, {}
local number = 1
while number <= total do
  local i = 5 + 4 * (number - 1)
  local how, subject, receipt, state = ARGV[i], ARGV[i + 1], ARGV[i + 3], states[number]
  local step = 1
  if how ~= '' or touched[subject] or rounds[number] or not state or receipt == '' then
    finish(finished)
    finished = {}
    replies[number] = settle_one(subject, tonumber(ARGV[i + 2]), receipt, how)
  elseif group.backlog then
    while number + step <= total and ARGV[i + 4 * step] == '' and ARGV[i + 4 * step + 1] == subject
        and ARGV[i + 4 * step + 3] == receipt do
      step = step + 1
    end
    local done = ack_run(subject, state, receipt, i, step)
    acked = acked + done
    for j = 0, done - 1 do
      replies[number + j] = 's'
    end
    if done == 0 then
      replies[number] = 't'
      done = 1
    end
    step = done
  else
    local seq, _, _, _, size = struct.unpack(STATE, state)
    if string.sub(state, STATE_SIZE + 1, STATE_SIZE + size) == receipt
        and seq == tonumber(ARGV[i + 2]) then
      finished[#finished + 1] = subject
      replies[number] = 's'
      acked = acked + 1
    else
      replies[number] = 't'
    end
  end
  touched[subject] = true
  number = number + step
end
finish(finished)
count(group, 'acked', acked)
if has_placed then
  ring(slot)
end
if #ARGV > 4 + 4 * total then
  --@include history
  remember_settled(group.at, cmsgpack.unpack(ARGV[#ARGV]), replies, now)
end
return table.concat(replies)
