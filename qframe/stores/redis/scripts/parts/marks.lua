-- Marks of what was published before, in `ids` with the time until which they are remembered.
local function known_marks(slot, marks, now)
  local known = {}
  if #marks == 0 then
    return known
  end
  local until_ms = read_many('ZMSCORE', slot .. 'ids', marks)
  for i, mark in ipairs(marks) do
    known[mark] = until_ms[i] and tonumber(until_ms[i]) > now or nil
  end
  return known
end

local function remember(slot, marks, until_ms)
  local arguments = {}
  local text = string.format('%.0f', until_ms)
  for mark in pairs(marks) do
    arguments[#arguments + 1] = text
    arguments[#arguments + 1] = mark
  end
  call_many('ZADD', slot .. 'ids', arguments)
end
