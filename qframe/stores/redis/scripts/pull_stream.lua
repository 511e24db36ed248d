#!lua flags=allow-oom
-- Purpose: hands out what is due of a stream's slot: first what left the line, then the line.
-- KEYS[1] slot: the slot's prefix; what is touched begins with it.
-- ARGV[1] given (now), ARGV[2] name (group), ARGV[3] epoch, ARGV[4] receipt, ARGV[5] limit,
--   ARGV[6] lease (ms), ARGV[7] max attempts, ARGV[8] run, ARGV[9] position ('' for none),
--   ARGV[10] keeps (1 where a history is kept, else 0), ARGV[11] address ('' if it does not stand
--   where it finds nothing), ARGV[12] standing (the receipt of what it is answered with then),
--   ARGV[13] in hand (how many of the line who asks has; '' where it does not say).
-- Reply: [0, next due (ms from now; -1 never), dead, lost, items, receipt of the window, start,
--   stop, skipped, full (1 if so much is parked that the line is not read, else 0)]; items as those
--   of pull; of the log [start, stop) is handed out, and read by who asked, but for the ranges that
--   are skipped: those are parked. [-1] if the epoch is another now, [-2] if there is no such
--   group.
-- Cost: 5 commands; up to 14 more where something has left the line or is to join it, and for what
--   joins 2, and 2 for each; one where it stands. Where the group keeps order and something has
--   left the line 5 more, 1 for each 16 entries of the log, and 4 to 6 for each key that is parked.
-- Promise: one atomic step; one write of the cursor, however many messages.
local slot = KEYS[1]
local given, name, epoch, receipt = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local limit, lease, max_attempts, run, position = tonumber(ARGV[5]), tonumber(ARGV[6]),
  tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local keeps, address, standing, in_hand = ARGV[10], ARGV[11], ARGV[12], tonumber(ARGV[13])
-- What is rarely needed is included where it is: to define a function costs time.
--@include time
local at = slot .. 'g:' .. name .. ':'
local cursor_key, body, later = at .. 'cursor', at .. 'body', slot .. 'later'
local cursor = redis.call('HMGET', cursor_key,
  'epoch', 'floor', 'read', 'receipt', 'lease', 'settled', 'max_parked')
if cursor[1] ~= epoch then
  return { cursor[1] and -1 or -2 }
end
local now = time_ms(given)
local floor, read = tonumber(cursor[2]), tonumber(cursor[3])
local window, leased = cursor[4], tonumber(cursor[5])
local lost, items, handed, died = 0, {}, 0, 0
local times = {}
-- What is parked: whether anything is, whether that is too much, what is skipped of the line.
local parks, full, skipped = false, 0, {}

-- As `PullRequest.is_ahead_of`. Where all of the window is in hand nothing has to be counted.
local is_ahead = position and position > read
if position == read and in_hand and in_hand < read - floor then
  --@include in_window
  is_ahead = in_hand < in_window(floor, read, cursor[6])
end
if floor < read and (leased <= now or is_ahead) then
  --@include many head places text log ranges parking window
  local losing = group_of(slot, name, 'stream', cursor[7])
  losing.gone = keeps == '1' and {} or nil
  lost = lose_window(losing, floor, read, load_ranges(cursor[6]), now, window)
  if losing.gone then
    --@include history lost
    remember_lost(losing.at, losing.gone, now)
  end
  floor, window, cursor[6] = read, '', ''
end
if redis.call('EXISTS', later, body) > 0 then
  --@include many head places bring_in text dead hand_out join
  join(slot, now)
  local group = group_of(slot, name, 'stream', cursor[7])
  group.gone = keeps == '1' and {} or nil
  local back = take_back(group, now)
  lost = lost + back
  if back > 0 and group.gone then
    --@include history lost
    remember_lost(group.at, group.gone, now)
  end
  promote(group, now)
  items, handed, died = hand_out(group, {
    now = now, receipt = receipt, limit = limit, lease_until = now + lease,
    max_attempts = max_attempts, run = run,
  })
  if group.max_parked > 0 then
    local behind = tonumber(redis.call('HGET', cursor_key, 'behind') or 0)
    parks, full = redis.call('EXISTS', body) == 1, behind >= group.max_parked and 1 or 0
  end
  times = { later = first_of(later), waiting = first_of(group.waiting),
            retry = first_of(group.retry), doing = first_of(group.doing) }
end

local start, stop, front = read, read, false
if handed < limit then
  start = math.max(floor, math.min(position or read, read))
  local last = full == 1 and read or tonumber(redis.call('GET', slot .. 'head') or 0)
  stop = math.min(start + limit - handed, last)
  if stop > start then
    local settled = {}
    if parks or (start < read and cursor[6] ~= '') then
      --@include ranges
      settled = load_ranges(cursor[6])
      -- What a pull whose reply was lost has parked is handed out no more.
      skipped, stop = unsettled_from(settled, start, limit - handed)
      stop = math.min(stop, last)
    end
    if floor == read then
      window = receipt
    end
    handed = handed + stop - start
    for i = 1, #skipped, 2 do
      handed = handed - (skipped[i + 1] - skipped[i])
    end
    read = math.max(read, stop)
    leased = now + lease
    if parks then
      --@include many head places text log ranges parking window
      local group, taken = group_of(slot, name, 'stream', cursor[7]), nil
      taken, front = divert(group, start, stop, settled, now)
      skipped = merged(skipped, taken)
      floor, settled = raise_floor(floor, merged(settled, taken))
      redis.call('HSET', cursor_key, 'floor', string.format('%.0f', floor),
        'settled', pack_ranges(settled))
    end
    redis.call('HSET', cursor_key, 'read', string.format('%.0f', read), 'receipt', window,
      'lease', string.format('%.0f', leased))
  end
end
local due = 0
if handed < limit and not front then
  due = -1
  for _, time in pairs(times) do
    local wait = math.max(0, time - now)
    due = due < 0 and wait or math.min(due, wait)
  end
  local comes = due
  if floor < read then
    local wait = math.max(0, leased - now)
    due = due < 0 and wait or math.min(due, wait)
  end
  if handed <= 4 and due ~= 0 then -- as stores.types.QUIET says
    if address == '' or cursor[7] then -- a group that keeps order looks at each message's key
      redis.call('SET', slot .. 'asleep', 1)
    else
      --@include asleep
      stand(slot, name, epoch, standing, lease, comes < 0 and 0 or now + comes, address)
    end
  end
end
return { 0, due, died, lost, items, window, start, stop, skipped, full }
