-- Hands out heads that are due, and the runs behind them, under one receipt.
--   terms: now, receipt, limit, lease_until, max_attempts, run
-- Answers items, flat: subject, head's value, attempt, lost; and how many went to dead.
local function hand_out(group, terms)
  local items, count_out, died, running = {}, 0, 0, 0
  local leases, states = {}, {}
  local lease_until = string.format('%.0f', terms.lease_until)
  -- What follows the seq in the state of a head that is handed out for the first time.
  local fresh = struct.pack('>I4I4I2I1', 1, 0, 1, #terms.receipt) .. terms.receipt
  local backlog = group.backlog

  local function give(subject, value, attempt, lost)
    local n = #items
    items[n + 1], items[n + 2], items[n + 3], items[n + 4] = subject, value, attempt, lost
    count_out = count_out + 1
  end

  local function give_run(subject)
    local most = math.min(terms.run - 1, terms.limit - count_out)
    if most < 1 then
      return 0
    end
    local given = 0
    for _, value in ipairs(redis.call('LRANGE', behind_of(group, subject), 0, most - 1)) do
      if struct.unpack('>I8', value) > terms.now then
        break
      end
      give(subject, value, 1, 0)
      given = given + 1
    end
    return given
  end

  local chunk = backlog and 8 or terms.limit
  while count_out < terms.limit do
    local popped = redis.call('ZPOPMIN', group.todo, math.min(chunk, terms.limit - count_out))
    if #popped == 0 then
      break
    end
    local subjects = {}
    for i = 1, #popped, 2 do
      subjects[#subjects + 1] = string.sub(popped[i], 17)
    end
    local bodies = read_many('HMGET', group.body, subjects)
    local before = read_many('HMGET', group.tries, subjects)
    local used = 0
    for i, subject in ipairs(subjects) do
      if count_out >= terms.limit then
        break
      end
      used = i
      local value, state = bodies[i], before[i]
      local n = #states
      if not value then
        redis.call('HDEL', group.tries, subject) -- somebody else has removed its head
      elseif not state then
        give(subject, value, 1, 0)
        local given = backlog and give_run(subject) or 0
        states[n + 1] = subject
        if given == 0 then
          states[n + 2] = string.sub(popped[2 * i - 1], 9, 16) .. fresh
        else
          states[n + 2] = string.sub(popped[2 * i - 1], 9, 16)
            .. struct.pack('>I4I4I2I1', 1, 0, 1 + given, #terms.receipt) .. terms.receipt
        end
        running = running + 1 + given
        leases[#leases + 1], leases[#leases + 2] = lease_until, subject
      else
        local head = unpack_head(value)
        read_state(head, state)
        if head.tries >= terms.max_attempts then
          local error = head.error ~= '' and head.error or 'its worker ended without settling it'
          add_dead_letter(group, subject, head, terms.now, error, false)
          advance(group, subject, head, terms.now, 0)
          died = died + 1
          break -- what follows may come before the others
        end
        head.tries, head.receipt, head.given = head.tries + 1, terms.receipt, 1
        give(subject, value, head.tries, head.lost)
        if backlog and head.lost == 0 then
          head.given = 1 + give_run(subject)
        end
        states[n + 1], states[n + 2] = subject, pack_state(head)
        running = running + head.given
        leases[#leases + 1], leases[#leases + 2] = lease_until, subject
      end
    end
    local back = {}
    for i = used + 1, #subjects do
      back[#back + 1], back[#back + 2] = popped[2 * i], popped[2 * i - 1]
    end
    call_many('ZADD', group.todo, back)
    if backlog and used > 0 and count_out > 0 then
      chunk = math.max(8, math.floor((terms.limit - count_out) * (#leases / 2) / count_out))
    end
  end
  call_many('ZADD', group.doing, leases)
  call_many('HSET', group.tries, states)
  if backlog then
    count(group, 'running', running)
  end
  return items, count_out, died
end
