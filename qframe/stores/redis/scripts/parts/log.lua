-- The log of a stream's slot: entries `<first offset>-<count>` with the fields `b`, the envelopes
-- of so many messages one after the other; `t`, when they joined; `p`, when they were published,
-- where that was earlier. Envelopes are skipped over by their msgpack lengths, never parsed.
local function first_and_count(id)
  local dash = string.find(id, '-', 1, true)
  return tonumber(string.sub(id, 1, dash - 1)), tonumber(string.sub(id, dash + 1))
end

local function fields_of(entry)
  local fields = {}
  for i = 1, #entry[2], 2 do
    fields[entry[2][i]] = entry[2][i + 1]
  end
  return fields
end

-- The entry that holds an offset, or nil.
local function entry_at(log, offset)
  local last = string.format('%.0f-18446744073709551615', offset)
  return redis.call('XREVRANGE', log, last, '-', 'COUNT', 1)[1]
end

-- Where the entry begins that holds an offset; the offset itself where none holds it yet.
local function entry_start(log, offset)
  local entry = entry_at(log, offset)
  if entry then
    local first, size = first_and_count(entry[1])
    if offset < first + size then
      return first
    end
  end
  return offset
end

-- The place behind the msgpack value that begins at `at`: nil, text, bytes, array or map.
local function skip(text, at)
  local byte = string.byte(text, at)
  if byte <= 0x7f or byte >= 0xe0 or byte == 0xc0 or byte == 0xc2 or byte == 0xc3 then
    return at + 1
  end
  local items = 0
  if byte <= 0x8f then
    at, items = at + 1, 2 * (byte - 0x80)
  elseif byte <= 0x9f then
    at, items = at + 1, byte - 0x90
  elseif byte <= 0xbf then
    return at + 1 + byte - 0xa0
  elseif byte == 0xc4 or byte == 0xd9 then
    return at + 2 + string.byte(text, at + 1)
  elseif byte == 0xc5 or byte == 0xda then
    return at + 3 + struct.unpack('>I2', text, at + 1)
  elseif byte == 0xc6 or byte == 0xdb then
    return at + 5 + struct.unpack('>I4', text, at + 1)
  elseif byte == 0xdc then
    at, items = at + 3, struct.unpack('>I2', text, at + 1)
  elseif byte == 0xde then
    at, items = at + 3, 2 * struct.unpack('>I2', text, at + 1)
  elseif byte == 0xdf then
    at, items = at + 5, 2 * struct.unpack('>I4', text, at + 1)
  else
    error('an envelope holds what it must not: ' .. byte)
  end
  for _ = 1, items do
    at = skip(text, at)
  end
  return at
end

-- Calls `visit(offset, envelope, published)` for each offset in [from, to) of the log.
local function each_message(log, from, to, visit)
  local start = entry_start(log, from)
  while start < to do
    local from_id = string.format('%.0f-0', start)
    local entries = redis.call('XRANGE', log, from_id, '+', 'COUNT', 16)
    if #entries == 0 then
      return
    end
    for _, entry in ipairs(entries) do
      local first, size = first_and_count(entry[1])
      local fields = fields_of(entry)
      local at = 1
      for offset = first, math.min(first + size, to) - 1 do
        local after = skip(fields.b, at)
        if offset >= from then
          visit(offset, string.sub(fields.b, at, after - 1), tonumber(fields.p or fields.t))
        end
        at = after
      end
      start = first + size
      if start >= to then
        return
      end
    end
  end
end
