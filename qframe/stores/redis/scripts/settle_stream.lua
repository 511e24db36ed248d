#!lua flags=allow-oom
-- Purpose: ends deliveries of a stream's line.
-- KEYS[1] slot: the slot's prefix; what is touched begins with it.
-- ARGV[1] now, ARGV[2] group, ARGV[3] epoch, ARGV[4] receipt; then for each settlement three: how it
--   ends, start, end. `how` is empty where all of [start, end) is acknowledged; else msgpack of
--   [verdict, delay, at, error, traceback, attempt] and only `start` ends.
-- Reply: a letter for each: s settled, t stale (changed nothing), or p where part of a range was
--   stale: then nothing of it changed. -2 if there is no such group.
-- Cost: 2 commands for any number of acks; for each other end 4 and the entry that holds it.
-- Promise: one atomic step; one write of the cursor; nothing ends without epoch and receipt in force.
local slot = KEYS[1]
local given, name, epoch, receipt = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
--@include time many bell head log window
local group = group_of(slot, name, 'stream')
local cursor = redis.call('HMGET', group.cursor,
  'epoch', 'floor', 'read', 'receipt', 'settled', 'acked')
if not cursor[1] then
  return -2
end
local total = (#ARGV - 4) / 3
if cursor[1] ~= epoch or epoch == '0000000000000000' or cursor[4] ~= receipt or receipt == '' then
  return string.rep('t', total)
end
local floor, read, ranges = tonumber(cursor[2]), tonumber(cursor[3]), load_ranges(cursor[5])
local answers, acked, now = {}, 0, nil

-- How much of [from, to) is held: all, none, or part of it.
local function held(from, to)
  if from >= read or to <= floor then
    return 't'
  end
  if from < floor or to > read then
    return 'p'
  end
  for i = 1, #ranges, 2 do
    if ranges[i] < to and from < ranges[i + 1] then
      return (ranges[i] <= from and to <= ranges[i + 1]) and 't' or 'p'
    end
  end
  return 's'
end

local function end_one(offset, how)
  local verdict, delay, at, error, traceback, attempt = unpack(cmsgpack.unpack(how))
  now = now or time_ms(given)
  each_message(slot .. 'log', offset, offset + 1, function(_, envelope, published)
    if verdict == 'dead' then
      bury(group, '', { seq = offset, priority = 0, tries = attempt, published = published,
                           envelope = envelope }, now, error, traceback)
    elseif verdict == 'retry' then
      leave(group, offset, envelope, published, at or now + delay, 1, 0, error or '', now)
    else
      leave(group, offset, envelope, published, 0, 0, 0, '', now)
    end
  end)
end

for number = 1, total do
  local i = 5 + 3 * (number - 1)
  local from, to = tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
  local answer = held(from, to)
  if answer == 's' then
    if ARGV[i] == '' then
      acked = acked + to - from
    else
      end_one(from, ARGV[i])
    end
    ranges = add_range(ranges, from, to)
    floor, ranges = raise_floor(floor, ranges)
  end
  answers[number] = answer
end
redis.call('HSET', group.cursor, 'floor', string.format('%.0f', floor),
  'settled', pack_ranges(ranges), 'acked', string.format('%.0f', (cursor[6] or 0) + acked))
if now then
  ring(slot) -- what left the line is due before whoever found the slot empty looks again
end
return table.concat(answers)
