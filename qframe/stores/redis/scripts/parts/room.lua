-- Whether a message would be one more for any group.
local function adds(kind, groups, subject)
  if kind == 'ordered' then
    return true
  end
  for _, group in ipairs(groups) do
    local head = load_head(group, subject)
    if not head or (head.receipt ~= ''
        and redis.call('HEXISTS', group.following, subject) == 0) then
      return true
    end
  end
  return false
end

-- Whether the slot holds fewer unsettled messages than its limit, for the group that has most.
local function has_room(slot, groups, limit)
  local most = 0
  for _, group in ipairs(groups) do
    local stored, settled, cancelled = unpack(
      redis.call('HMGET', group.cursor, 'published', 'acked', 'cancelled'))
    most = math.max(most, (stored or 0) - (settled or 0) - (cancelled or 0)
      - redis.call('ZCARD', group.dead))
  end
  return most + redis.call('HLEN', slot .. 'letters') < limit
end
