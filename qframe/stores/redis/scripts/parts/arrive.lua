-- How a message of a subject is queued for a group, and for all of a slot's groups.
local function is_parked(group, subject, due, published)
  -- Due when it was published: it has never waited. The clock may have gone back since.
  return due ~= published
    and (redis.call('ZSCORE', group.waiting, subject) or redis.call('ZSCORE', group.retry, subject))
end

-- Queues a message; returns 's' stored, 'm' merged, 'r' replaced.
local function queue(group, subject, message, now)
  local old = load_head(group, subject)
  if not old then
    redis.call('HSET', group.body, subject, pack_head(message))
    place(group, subject, message, now)
    count(group, 'published', 1)
    return 's'
  end
  if group.kind == 'ordered' then
    redis.call('RPUSH', behind_of(group, subject), pack_head(message))
    count(group, 'published', 1)
    if is_parked(group, subject, old.due, old.published) then
      count(group, 'parked', 1)
    end
    return 's'
  end
  local outcome = group.kind == 'merge' and 'm' or 'r'
  if old.receipt ~= '' then
    local following = redis.call('HGET', group.following, subject)
    if not following then
      redis.call('HSET', group.following, subject, pack_head(message))
      count(group, 'published', 1)
      return 's'
    end
    local first = unpack_head(following)
    local next_round = unpack_head(pack_head(message))
    next_round.due, next_round.seq = due_again(group.kind, first.due, message.due, now), first.seq
    redis.call('HSET', group.following, subject, pack_head(next_round))
    return outcome
  end
  local stays = old.tries == 0 and old.priority == message.priority
    and old.due == due_again(group.kind, old.due, message.due, now)
  if not stays then
    take_out(group, subject, old)
  end
  replace(group, old, message, now)
  redis.call('HSET', group.body, subject, pack_head(old))
  write_state(group, subject, old)
  if not stays then
    place(group, subject, old, now)
  end
  return outcome
end

-- The groups that collect in a slot: those that are subscribed, or else the unclaimed one, ''.
local function collecting(slot, kind)
  local groups = {}
  for _, name in ipairs(redis.call('HKEYS', slot .. 'groups')) do
    groups[#groups + 1] = group_of(slot, name, kind)
  end
  if #groups == 0 then
    groups[1] = group_of(slot, '', kind)
  end
  return groups
end

-- Queues messages, each { subject, head }, for all groups under the slot's next numbers.
local function arrive(slot, kind, going, now)
  local outcomes = {}
  if #going == 0 then
    return outcomes
  end
  local groups = collecting(slot, kind)
  local seq = redis.call('INCRBY', slot .. 'head', #going) - #going
  for i, each in ipairs(going) do
    each.head.seq = seq + i - 1
    for _, group in ipairs(groups) do
      local outcome = queue(group, each.subject, each.head, now)
      if outcome == 's' or not outcomes[i] then
        outcomes[i] = outcome
      end
    end
  end
  return outcomes
end

-- Queues messages for a group, given as values; new subjects all together, the others one by one.
-- Of a message that is not simply due now `heads` has the head as well.
local function arrive_many(group, subjects, values, heads, now, outcomes)
  local bodies = read_many('HMGET', group.body, subjects)
  local bodies_new, todo_new, seen, stored, n = {}, {}, {}, 0, 0
  local is_ordered, behind = group.kind == 'ordered', behind_of(group, '')
  for i, subject in ipairs(subjects) do
    local value, body, head, outcome = values[i], bodies[i], heads[i], 's'
    if not body and not seen[subject] then
      seen[subject] = head and head.due or now
      stored = stored + 1
      if seen[subject] > now then
        redis.call('HSET', group.body, subject, value)
        place(group, subject, head, now)
      else
        n = n + 2
        bodies_new[n - 1], bodies_new[n] = subject, value
        todo_new[n - 1] = head and rank_of(group.kind, head.priority) or 0
        todo_new[n] = string.sub(value, 1, 16) .. subject
      end
    elseif is_ordered then
      redis.call('RPUSH', behind .. subject, value)
      stored = stored + 1
      local parked
      if body then
        local due, _, _, published = struct.unpack(META, body)
        parked = is_parked(group, subject, due, published)
      else
        parked = seen[subject] > now
      end
      count(group, 'parked', parked and 1 or 0)
    else
      call_many('HSET', group.body, bodies_new)
      call_many('ZADD', group.todo, todo_new)
      bodies_new, todo_new, n = {}, {}, 0
      outcome = queue(group, subject, unpack_head(value), now)
    end
    if outcome == 's' or not outcomes[i] then
      outcomes[i] = outcome
    end
  end
  call_many('HSET', group.body, bodies_new)
  call_many('ZADD', group.todo, todo_new)
  count(group, 'published', stored)
end
