-- A stream's window: what lies between a group's floor and its read position. What is settled above
-- the floor is kept as ranges, `settled`: msgpack of start, end, start, end and so on.
local function load_ranges(packed)
  if not packed or packed == '' then
    return {}
  end
  return cmsgpack.unpack(packed)
end

local function is_settled(ranges, offset)
  for i = 1, #ranges, 2 do
    if offset < ranges[i] then
      return false
    end
    if offset < ranges[i + 1] then
      return true
    end
  end
  return false
end

-- Adds [from, to) to sorted ranges; what it touches becomes one with it.
local function add_range(ranges, from, to)
  local new, placed = {}, false
  for i = 1, #ranges, 2 do
    local a, b = ranges[i], ranges[i + 1]
    if b < from then
      new[#new + 1], new[#new + 2] = a, b
    elseif a > to then
      if not placed then
        new[#new + 1], new[#new + 2], placed = from, to, true
      end
      new[#new + 1], new[#new + 2] = a, b
    else
      from, to = math.min(a, from), math.max(b, to)
    end
  end
  if not placed then
    new[#new + 1], new[#new + 2] = from, to
  end
  return new
end

-- Moves the floor over the first range if it begins there; answers floor and ranges.
local function raise_floor(floor, ranges)
  if ranges[1] == floor then
    local rest = {}
    for i = 3, #ranges do
      rest[i - 2] = ranges[i]
    end
    return ranges[2], rest
  end
  return floor, ranges
end

local function pack_ranges(ranges)
  return #ranges > 0 and cmsgpack.pack(ranges) or ''
end

-- Takes a message out of the line, to be queued for itself under its offset's text.
local function leave(group, offset, envelope, published, due, tries, lost, error, now)
  local subject = string.format('%.0f', offset)
  local head = { due = due, seq = offset, priority = 0, published = published, tries = tries,
                 envelope = envelope, lost = lost, given = 0, receipt = '', error = error }
  redis.call('HSET', group.body, subject, pack_head(head))
  write_state(group, subject, head)
  place(group, subject, head, now)
end

-- Takes the whole window back: what is unsettled in it leaves the line, lost once.
local function lose_window(group, floor, read, ranges, now)
  local lost = 0
  each_message(group.slot .. 'log', floor, read, function(offset, envelope, published)
    if not is_settled(ranges, offset) then
      leave(group, offset, envelope, published, 0, 1, 1, '', now)
      lost = lost + 1
    end
  end)
  redis.call('HSET', group.cursor, 'floor', string.format('%.0f', read), 'settled', '',
    'receipt', '', 'lease', 0)
  return lost
end
