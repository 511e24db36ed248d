-- Marks of what was published before, in `ids` with the time until which they are remembered; that
-- of a series never passes, since no clock comes to it.
local function known_marks(slot, marks, now)
  local known = {}
  if #marks == 0 then
    return known
  end
  local found = read_many('ZMSCORE', slot .. 'ids', marks)
  for i, mark in ipairs(marks) do
    local until_ms = tonumber(found[i] or 0)
    known[mark] = until_ms > now and until_ms or nil
  end
  return known
end

-- Whether a series takes a message of it: only one past the last.
local function has_place(known, message)
  local last = message.series and known[message.series]
  return not last or last < message.place
end

-- `marks` has the time of each, or true for those of this window.
local function remember(slot, marks, until_ms)
  local arguments = {}
  for mark, own in pairs(marks) do
    arguments[#arguments + 1] = string.format('%.0f', own == true and until_ms or own)
    arguments[#arguments + 1] = mark
  end
  call_many('ZADD', slot .. 'ids', arguments)
end
