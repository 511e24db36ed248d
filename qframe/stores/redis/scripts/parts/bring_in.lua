-- What must happen in a slot before anything is handed out.
local function first_of(key)
  local found = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
  return tonumber(found[2])
end

-- What is due in waiting or retry goes to todo, 500 at most; returns whether that was all.
local function promote_from(group, key, now)
  local due = redis.call('ZRANGEBYSCORE', key, '-inf', string.format('%.0f', now), 'LIMIT', 0, 500)
  if #due == 0 then
    return true
  end
  local members = {}
  for i, value in ipairs(redis.call('HMGET', group.body, unpack(due))) do
    if value then -- else somebody else has removed it
      local head = unpack_head(value)
      members[#members + 1] = rank_of(group.kind, head.priority)
      members[#members + 1] = member_of(head, due[i])
      count(group, 'parked', -length_behind(group, due[i]))
    end
  end
  if #members > 0 then
    redis.call('ZADD', group.todo, unpack(members))
  end
  redis.call('ZREM', key, unpack(due))
  return #due < 500
end

local function promote(group, now)
  local all = true
  for _, key in ipairs({ group.waiting, group.retry }) do
    local first = first_of(key)
    if first and first <= now then
      all = promote_from(group, key, now) and all
    end
  end
  return all
end

-- Heads whose lease has passed come back, 500 at most; returns how many.
local function take_back(group, now)
  local first = first_of(group.doing)
  if not first or first > now then
    return 0
  end
  return lose(group, redis.call('ZRANGEBYSCORE', group.doing, '-inf', string.format('%.0f', now),
    'LIMIT', 0, 500), now)
end

-- The earliest of some times, from now on: 0 for one that has passed, -1 where there is none.
local function next_due(now, times)
  local earliest
  for _, time in pairs(times) do
    earliest = math.min(earliest or time, time)
  end
  return earliest and math.max(0, earliest - now) or -1
end
