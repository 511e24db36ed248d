#!lua flags=allow-oom
-- Purpose: makes leases end later.
-- KEYS[1] slot: the slot's prefix; what is touched begins with it.
-- ARGV[1] given (now), ARGV[2] name (group), ARGV[3] epoch, ARGV[4] lease (ms); then for each hold
--   two: subject ('' for the window of a stream's line), receipt.
-- Reply: a letter for each: s renewed, t not held any more. -2 if there is no such group.
-- Cost: 4 commands, 5 for a window beside others.
-- Promise: one atomic step; only who has epoch and receipt keeps a lease.
local slot = KEYS[1]
local given, name, epoch, lease = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
--@include time many head
local group = group_of(slot, name, '')
local cursor = redis.call('HMGET', group.cursor, 'epoch', 'receipt', 'floor', 'read')
if not cursor[1] then
  return -2
end
local total = (#ARGV - 4) / 2
if cursor[1] ~= epoch then
  return string.rep('t', total)
end
local until_ms = string.format('%.0f', time_ms(given) + lease)
local subjects = {}
for i = 5, #ARGV, 2 do
  subjects[#subjects + 1] = ARGV[i]
end
local states = read_many('HMGET', group.tries, subjects)
local replies, renewed = {}, {}
for number, subject in ipairs(subjects) do
  local receipt, state = ARGV[4 + 2 * number], states[number]
  local held = false
  if subject == '' then
    held = cursor[2] == receipt and tonumber(cursor[3]) < tonumber(cursor[4])
    if held then
      redis.call('HSET', group.cursor, 'lease', until_ms)
    end
  elseif state and receipt ~= '' then
    local _, _, _, _, size = struct.unpack(STATE, state)
    held = string.sub(state, STATE_SIZE + 1, STATE_SIZE + size) == receipt
    if held then
      renewed[#renewed + 1], renewed[#renewed + 2] = until_ms, subject
    end
  end
  replies[number] = held and 's' or 't'
end
call_many('ZADD', group.doing, renewed)
return table.concat(replies)
