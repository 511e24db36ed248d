-- The hash of the documents of a space: by name '<version> <written at> <value>'.
local function documents_of(slot, name, space)
  return slot .. 'g:' .. name .. ':documents:' .. space
end

local function ring_documents(slot, name, space)
  local topic, number = string.match(slot, '^qf:{(.*):(%d+)}:$')
  redis.call('PUBLISH', 'qf:bell:' .. topic .. ':' .. name .. ':' .. space, number)
end
