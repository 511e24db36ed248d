-- What is settled above a group's floor, as sorted ranges: start, end, start, end and so on.
local function load_ranges(packed)
  if not packed or packed == '' then
    return {}
  end
  return cmsgpack.unpack(packed)
end

-- Where the first range stands that ends behind an offset; behind all of them if none does.
local function first_behind(ranges, offset)
  local low, high = 1, #ranges / 2 + 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    if ranges[2 * middle] > offset then
      high = middle
    else
      low = middle + 1
    end
  end
  return 2 * low - 1
end

local function is_settled(ranges, offset)
  local start = ranges[first_behind(ranges, offset)]
  return start ~= nil and start <= offset
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

-- Sorted ranges and others that are apart from them, as one.
local function merged(ranges, others)
  local new, i, j = {}, 1, 1
  while i <= #ranges or j <= #others do
    local a, b
    if j > #others or (i <= #ranges and ranges[i] < others[j]) then
      a, b, i = ranges[i], ranges[i + 1], i + 2
    else
      a, b, j = others[j], others[j + 1], j + 2
    end
    if new[#new] == a then
      new[#new] = b
    else
      new[#new + 1], new[#new + 2] = a, b
    end
  end
  return new
end

-- The ranges from an offset on that lie before so many offsets which are in none, and the end of
-- all these.
local function unsettled_from(ranges, start, many)
  local within, stop = {}, start + many
  for i = 1, #ranges, 2 do
    local a, b = math.max(ranges[i], start), ranges[i + 1]
    if a < b and a < stop then
      within[#within + 1], within[#within + 2] = a, b
      stop = stop + b - a
    end
  end
  return within, stop
end

-- Moves the floor over the first range if it begins there; returns floor and ranges.
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

-- How much of [from, to) a window holds: s all, t nothing, p a part of it.
local function held(floor, read, ranges, from, to)
  if from >= read or to <= floor then
    return 't'
  end
  if from < floor or to > read then
    return 'p'
  end
  local i = first_behind(ranges, from)
  if not ranges[i] or ranges[i] >= to then
    return 's'
  end
  return (ranges[i] <= from and to <= ranges[i + 1]) and 't' or 'p'
end
