-- Whether a slot is closed: it is being split in two, or was (1), is not in use yet (new), or its
-- topic was deleted (gone): it takes nothing. A slot of a topic that was declared anew after that
-- has there as what it was declared: `as`, its kind, and its slots. Whoever publishes gives what it
-- knows, and must not mean the old topic: its slots would have other keys.
local function is_closed(slot, declared)
  local why = redis.call('GET', slot .. 'closed')
  local anew = why and string.match(why, '^as (.+)$')
  return why and not (anew and (not declared or declared == anew))
end

-- What a script replies then.
local function refusal()
  return redis.error_reply('CLOSED the slot is being split, or was, is not in use yet, or is gone')
end
