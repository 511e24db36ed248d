-- What was delayed and is due joins the log of a stream's slot, 500 at most.
local function join(slot, now)
  local first_due = first_of(slot .. 'later')
  if not first_due or first_due > now then
    return
  end
  local text = string.format('%.0f', now)
  local due = redis.call('ZRANGEBYSCORE', slot .. 'later', '-inf', text, 'LIMIT', 0, 500)
  for _, member in ipairs(due) do
    local at, published = string.find(member, EMPTY, 1, true), now
    if at and #member >= at + 16 then
      published = select(2, struct.unpack('>I8I8', member, at + 1))
    else
      at = -16 -- somebody else's: it goes into the log as it is, and dies there
    end
    local first = redis.call('INCR', slot .. 'head') - 1
    redis.call('XADD', slot .. 'log', string.format('%.0f-1', first),
      'b', string.sub(member, at + 17), 't', text, 'p', string.format('%.0f', published))
  end
  redis.call('ZREM', slot .. 'later', unpack(due))
end
