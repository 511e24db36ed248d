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

-- The place behind the msgpack value that begins at `at`; nil where there is no whole one.
local function skip(text, at)
  local size, left = #text, 1
  local function number(bytes)
    return at + bytes <= size and struct.unpack('>I' .. bytes, text, at + 1) or nil
  end
  while left > 0 do
    local byte, plain, sized, counted, each = string.byte(text, at), nil, nil, nil, 1
    left = left - 1
    if not byte or byte == 0xc1 then
      return nil
    elseif byte <= 0x7f or byte >= 0xe0 or byte >= 0xc0 and byte <= 0xc3 then
      plain = 0
    elseif byte <= 0x9f then
      plain, left = 0, left + (byte <= 0x8f and 2 * (byte - 0x80) or byte - 0x90)
    elseif byte <= 0xbf then
      plain = byte - 0xa0
    elseif byte <= 0xc6 then
      sized = 2 ^ (byte - 0xc4)
    elseif byte <= 0xc9 then
      sized, plain = 2 ^ (byte - 0xc7), 1
    elseif byte <= 0xcb then
      plain = 4 * (byte - 0xc9)
    elseif byte <= 0xd3 then
      plain = 2 ^ ((byte - 0xcc) % 4)
    elseif byte <= 0xd8 then
      plain = 1 + 2 ^ (byte - 0xd4)
    elseif byte <= 0xdb then
      sized = 2 ^ (byte - 0xd9)
    elseif byte <= 0xdd then
      counted = 2 ^ (byte - 0xdb)
    else
      counted, each = 2 ^ (byte - 0xdd), 2
    end
    local count = 0
    if sized or counted then
      count = number(sized or counted)
      if not count then
        return nil
      end
    end
    left = left + (counted and each * count or 0)
    at = at + 1 + (sized or counted or 0) + (plain or 0) + (sized and count or 0)
  end
  return at <= size + 1 and at or nil
end

-- Calls `visit(offset, envelope, published)` for each offset in [from, to) of an entry. What
-- another program wrote may be no envelopes: where no whole value follows, the next message has all
-- the rest, as the last one has, and those behind it nothing.
local function each_of_entry(entry, from, to, visit)
  local first, size = first_and_count(entry[1])
  local fields = fields_of(entry)
  local bytes, at = fields.b or '', 1
  local published = tonumber(fields.p or fields.t) or 0
  for offset = first, math.min(first + math.min(size, #bytes + 1), to) - 1 do
    local after = offset < first + size - 1 and skip(bytes, at) or #bytes + 1
    if offset >= from then
      visit(offset, string.sub(bytes, at, after - 1), published)
    end
    at = after
  end
end

-- The same for each offset in [from, to) of the log.
local function each_message(log, from, to, visit)
  local start = string.format('%.0f-0', entry_start(log, from))
  while true do
    local entries = redis.call('XRANGE', log, start, '+', 'COUNT', 16)
    if #entries == 0 then
      return
    end
    for _, entry in ipairs(entries) do
      local first, size = first_and_count(entry[1])
      if first >= to then
        return
      end
      each_of_entry(entry, from, to, visit)
      if first + size >= to then
        return
      end
      start = '(' .. entry[1]
    end
  end
end
