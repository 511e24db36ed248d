#!lua flags=allow-oom
-- Purpose: hands out what is due of a slot's subjects.
-- KEYS[1] slot: the slot's prefix; what is touched begins with it.
-- ARGV[1] given (now), ARGV[2] kind, ARGV[3] name (group), ARGV[4] epoch, ARGV[5] receipt,
--   ARGV[6] limit, ARGV[7] lease (ms), ARGV[8] max attempts, ARGV[9] run, ARGV[10] keeps (1 where a
--   history is kept, else 0), ARGV[11] address ('' if it does not stand where it finds nothing),
--   ARGV[12] standing (the receipt of what it is answered with then).
-- Reply: [0, next due (ms from now; -1 never), dead, lost, gaps, items]; items are flat: subject,
--   head's value, attempt, lost. [-1] if the epoch is another now, [-2] if there is no such group.
-- Cost: 14 commands, 10 where the limit is reached or nothing is due; for ordered 3 more, 1 for
--   each subject and 3 for each further chunk of them; one where it stands; some for what is lost
--   or promoted.
-- Promise: one atomic step; nothing before its time, nothing under an epoch that has passed.
local slot = KEYS[1]
local given, kind, name, epoch, receipt = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local limit, lease = tonumber(ARGV[6]), tonumber(ARGV[7])
local max_attempts, run, keeps = tonumber(ARGV[8]), tonumber(ARGV[9]), ARGV[10]
local address, standing = ARGV[11], ARGV[12]
--@include time many head places arrive sequence bring_in text dead hand_out
local group = group_of(slot, name, kind)
local owner = redis.call('HGET', group.cursor, 'epoch')
if owner ~= epoch then
  return { owner and -1 or -2 }
end
local now = time_ms(given)
local gaps = 0
if kind == 'ordered' then
  local first = first_of(slot .. 'gaps')
  if first and first <= now then
    local going = {}
    gaps = pass_overdue(slot, now, going)
    arrive(slot, kind, going, now)
  end
end
group.gone = keeps == '1' and {} or nil
local lost = take_back(group, now)
if lost > 0 and group.gone then
  --@include history lost
  remember_lost(group.at, group.gone, now)
end
-- Whose rank counts is not known before all that is due has one: the next pull goes on.
if not promote(group, now) and (kind == 'ordered' or kind == 'priority') then
  return { 0, 0, 0, lost, gaps, {} }
end
local items, count_out, died = hand_out(group, {
  now = now, receipt = receipt, limit = limit, lease_until = now + lease,
  max_attempts = max_attempts, run = run,
})
local due, times = 0, nil
if count_out < limit then
  times = {
    waiting = first_of(group.waiting), retry = first_of(group.retry),
    gaps = kind == 'ordered' and first_of(slot .. 'gaps') or nil,
  }
  local comes = next_due(now, times)
  times.doing = first_of(group.doing)
  due = next_due(now, times)
  if count_out <= 4 and due ~= 0 then -- as stores.types.QUIET says
    if address == '' then
      redis.call('SET', slot .. 'asleep', 1)
    else
      --@include asleep
      stand(slot, name, epoch, standing, lease, comes < 0 and 0 or now + comes, address)
    end
  end
end
return { 0, due, died, lost, gaps, items }
