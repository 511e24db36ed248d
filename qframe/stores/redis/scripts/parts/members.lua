-- Takes members out of a roster, with what they own.
local function take_out(roster, members)
  call_many('ZREM', roster.members, members)
  call_many('HDEL', roster.joined, members)
  local is_out, free = {}, {}
  for _, member in ipairs(members) do
    is_out[member] = true
  end
  local owners = redis.call('HGETALL', roster.owners)
  for i = 1, #owners, 2 do
    if is_out[string.match(owners[i + 1], '^%d+ %S+ (.*)$')] then
      free[#free + 1] = owners[i]
    end
  end
  call_many('HDEL', roster.owners, free)
end

-- Drops those whose lease has passed; returns whether there were any.
local function drop_passed(roster, now)
  local passed = redis.call('ZRANGEBYSCORE', roster.members, '-inf', string.format('%.0f', now))
  if #passed > 0 then
    take_out(roster, passed)
  end
  return #passed > 0
end

-- Gives a roster that has changed its new version, and notifies the subscribers.
local function rename(roster, version)
  redis.call('SET', roster.key, version)
  ring_roster(roster)
end
