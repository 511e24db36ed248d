-- The time in milliseconds since 1970: the server's, unless a test gives its own.
local function time_ms(given)
  if given ~= '' then
    return tonumber(given)
  end
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
