-- How many messages of a stream's line are handed out and not settled.
local function in_window(floor, read, settled)
  local count, ranges = read - floor, (settled or '') ~= '' and cmsgpack.unpack(settled) or {}
  for i = 1, #ranges, 2 do
    count = count - (ranges[i + 1] - ranges[i])
  end
  return count
end
