-- The hash of the documents of a space: by name '<version> <written at> <rank> <value>'.
local function documents_of(slot, name, space)
  return slot .. 'g:' .. name .. ':documents:' .. space
end

-- The sorted set of their ranks and names, each with the score 0: so it is in the order of both.
local function ranks_of(documents)
  return documents .. ':ranks'
end

local function ranked_name(rank, document)
  return string.format('%016.0f ', rank) .. document
end

local function ring_documents(slot, name, space)
  local topic, number = string.match(slot, '^qf:{(.*):(%d+)}:$')
  redis.call('PUBLISH', 'qf:bell:' .. topic .. ':' .. name .. ':' .. space, number)
end
