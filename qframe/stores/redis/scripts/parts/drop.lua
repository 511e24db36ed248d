-- Forgets a group of a slot, and what stands for it in steps of 500 subjects; returns whether it
-- collected till now (1 or 0), and whether there is more to remove (1 or 0).
local function drop(slot, name, kind)
  local group, epoch = group_of(slot, name, kind), true
  if kind == 'stream' then
    group, epoch = load_group(slot, name, kind)
  end
  local has_backlog = group.backlog or not epoch -- without a cursor, this is not the first step
  local was = redis.call('HDEL', slot .. 'groups', name)
  if redis.call('EXISTS', slot .. 'groups') == 0 then
    redis.call('DEL', slot .. 'claimed')
  end
  local at = slot .. 'g:' .. name .. ':'
  redis.call('UNLINK', group.cursor, group.waiting, group.retry, group.todo, group.doing,
    group.tries, group.following, group.dead, group.graves, group.named, group.keyed,
    at .. 'bucket', at .. 'history', at .. 'ended')
  -- The spaces of stores/documents.py.
  for _, space in ipairs({ 'roster', 'tuning', 'reports', 'schedules', 'queues' }) do
    local documents = documents_of(slot, name, space)
    if redis.call('UNLINK', documents, ranks_of(documents)) > 0 then
      ring_documents(slot, name, space)
    end
  end
  if has_backlog then
    -- A scan from the beginning would look at what it has emptied, and find nothing any more.
    for _, subject in ipairs(redis.call('HRANDFIELD', group.body, 500)) do
      redis.call('UNLINK', behind_of(group, subject))
      redis.call('HDEL', group.body, subject)
    end
    if redis.call('EXISTS', group.body) == 1 then
      return was, 1
    end
  else
    redis.call('UNLINK', group.body)
  end
  redis.call('ZREM', slot .. 'expiries', name)
  return was, 0
end
