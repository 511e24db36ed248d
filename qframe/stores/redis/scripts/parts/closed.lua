-- Whether a slot is closed: it is being split in two, or was (1), is not in use yet (new), or its
-- topic was deleted (gone): it takes nothing. A slot of a topic that was declared anew after that
-- has `kind` and the kind there: whoever publishes gives its own, and must not mean the old topic.
local function is_closed(slot, kind)
  local why = redis.call('GET', slot .. 'closed')
  local declared = why and string.match(why, '^kind (.+)$')
  return why and not (declared and (not kind or declared == kind))
end

-- What a script replies then.
local function refusal()
  return redis.error_reply('CLOSED the slot is being split, or was, is not in use yet, or is gone')
end
