-- Whether a slot is closed, since it is being split in two, or was, or is not in use yet: it takes
-- nothing.
local function is_closed(slot)
  return redis.call('GET', slot .. 'closed') and true
end

-- What a script replies then.
local function refusal()
  return redis.error_reply('CLOSED the slot is being split, or was, or is not in use yet')
end
