-- Dead letters: their places in `dead`, their records in `graves`, and the leads to them.
-- A lead is '>I4' a text's length, the text, '>I8' the letter's seq: in `named` the text is its id,
-- empty where none can be read, so each letter has one there; in `keyed` its key, if it has one.
local function leads_of(member, record)
  local id, key = nil, nil
  if #record >= 12 then
    local _, size = struct.unpack('>I8I4', record)
    id, key = names_of(string.sub(record, 13 + size))
  end
  id = id or ''
  return struct.pack('>I4', #id) .. id .. member, key and struct.pack('>I4', #key) .. key .. member
end

-- Adds the leads to letters; returns how many letters lacked one.
local function name_dead_letters(group, members, records)
  local done = 0
  for i, record in ipairs(records) do
    if record then
      local by_id, by_key = leads_of(members[i], record)
      local added = redis.call('ZADD', group.named, 0, by_id)
      if by_key then
        added = added + redis.call('ZADD', group.keyed, 0, by_key)
      end
      done = done + math.min(1, added)
    end
  end
  return done
end

local function add_dead_letter(group, subject, head, now, error, traceback)
  local member = struct.pack('>I8', head.seq)
  local queued = group.kind ~= 'stream' and subject
  local facts = cmsgpack.pack({ queued, head.priority, head.tries, error, traceback })
  local record = struct.pack('>I8I4', head.published, #facts) .. facts .. head.envelope
  redis.call('ZADD', group.dead, string.format('%.0f', now), member)
  redis.call('HSET', group.graves, member, record)
  name_dead_letters(group, { member }, { record })
end

-- Removes letters; returns how many were there.
local function remove_dead_letters(group, members)
  local done = 0
  for from = 1, #members, 500 do
    local till = math.min(from + 499, #members)
    local named, keyed = {}, {}
    for i, record in ipairs(redis.call('HMGET', group.graves, unpack(members, from, till))) do
      if record then
        named[#named + 1], keyed[#keyed + 1] = leads_of(members[from + i - 1], record)
      end
    end
    if #named > 0 then
      redis.call('ZREM', group.named, unpack(named))
    end
    if #keyed > 0 then
      redis.call('ZREM', group.keyed, unpack(keyed))
    end
    redis.call('HDEL', group.graves, unpack(members, from, till))
    done = done + redis.call('ZREM', group.dead, unpack(members, from, till))
  end
  return done
end
