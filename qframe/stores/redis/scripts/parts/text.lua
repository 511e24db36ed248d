-- The text in msgpack that begins at a place of a value, and the place behind it; nil for none.
local function text_at(value, at)
  local byte = string.byte(value, at) or 0
  local wide = ({ [0xd9] = 1, [0xda] = 2, [0xdb] = 4 })[byte] or 0
  if (wide == 0 and (byte < 0xa0 or byte > 0xbf)) or #value < at + wide then
    return nil
  end
  local size = wide == 0 and byte - 0xa0 or struct.unpack('>I' .. wide, value, at + 1)
  local from = at + 1 + wide
  if #value < from + size - 1 then
    return nil
  end
  return string.sub(value, from, from + size - 1), from + size
end

-- The id and the key of an envelope, by its first bytes; nil where none is.
local function names_of(envelope)
  local byte = string.byte(envelope) or 0
  local at = byte >= 0x90 and byte <= 0x9f and 2 or ({ [0xdc] = 4, [0xdd] = 6 })[byte]
  if not at then
    return nil
  end
  local id, behind = text_at(envelope, at)
  return id, id and text_at(envelope, behind) or nil
end
