-- Whether a slot is closed, since it is being split in two, or was: it takes nothing any more.
local function is_closed(slot)
  return redis.call('GET', slot .. 'closed') == '1'
end

-- What a script replies then.
local function refusal()
  return redis.error_reply('CLOSED the slot is being split, or was')
end
