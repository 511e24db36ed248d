-- Runs a command over any number of arguments, an even thousand at a time: Lua's stack is finite.
local function call_many(command, key, arguments)
  for i = 1, #arguments, 1000 do
    redis.call(command, key, unpack(arguments, i, math.min(i + 999, #arguments)))
  end
end

local function read_many(command, key, arguments)
  if #arguments <= 1000 then
    return redis.call(command, key, unpack(arguments))
  end
  local found = {}
  for i = 1, #arguments, 1000 do
    local part = redis.call(command, key, unpack(arguments, i, math.min(i + 999, #arguments)))
    for j = 1, #part do
      found[i + j - 1] = part[j]
    end
  end
  return found
end
