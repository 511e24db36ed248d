#!lua flags=allow-oom
-- Purpose: removes what stands in a slot that is no longer, or not yet, in use, in steps.
-- KEYS[1] slot: the slot's prefix; what is touched begins with it.
-- ARGV[1] kind, ARGV[2] step (how many subjects that may have messages behind them), ARGV[3] leased
--   (until when the lease lasts under which the caller sees to the growth).
-- Reply: 1 if there is more to remove, else 0; an error CLOSED if the slot is in use.
-- Cost: 4 commands, 6 where it is not closed, and 4 for each group; 2 more for each step where
--   messages stand behind others.
-- Promise: what is left is seen by nobody. A closed slot stays closed, and the list of its groups,
--   their history and their cursors stay, so that owners of before are fenced; and in slot 0 what
--   is no slot's.
local slot = KEYS[1]
local kind, step, leased = ARGV[1], ARGV[2], ARGV[3]
--@include closed head
local keeps = redis.call('GET', slot .. 'closed') == '1'
if not keeps then
  local used = string.match(redis.call('GET', slot .. 'opened') or '', '^=(%d+)$')
  if used and tonumber(used) >= tonumber(leased) then
    return refusal() -- it is in use by now
  end
  redis.call('SET', slot .. 'opened', '-') -- nobody's, and nobody may open it, until all is gone
end
local names = redis.call('HKEYS', slot .. 'groups')
names[#names + 1] = ''
for _, name in ipairs(names) do
  local group = group_of(slot, name, kind)
  if kind == 'ordered' or kind == 'stream' then
    -- A scan from the beginning would look at what it has emptied, and find nothing any more.
    local subjects, lists = redis.call('HRANDFIELD', group.body, step), {}
    for i, subject in ipairs(subjects) do
      lists[i] = behind_of(group, subject)
    end
    if #subjects > 0 then
      redis.call('UNLINK', unpack(lists))
      redis.call('HDEL', group.body, unpack(subjects))
    end
    if redis.call('EXISTS', group.body) == 1 then
      return 1
    end
  end
  redis.call('UNLINK', group.waiting, group.retry, group.todo, group.doing, group.body,
    group.tries, group.following, group.dead, group.graves, group.named, group.keyed)
  if not keeps then
    redis.call('UNLINK', group.at .. 'history', group.at .. 'ended')
  end
  if not keeps or name == '' then
    redis.call('UNLINK', group.cursor)
  end
end
redis.call('UNLINK', slot .. 'head', slot .. 'first', slot .. 'ticket', slot .. 'log',
  slot .. 'later', slot .. 'ids', slot .. 'letters', slot .. 'held', slot .. 'gaps',
  slot .. 'sequences', slot .. 'asleep', slot .. 'opened')
if not keeps then
  redis.call('UNLINK', slot .. 'groups', slot .. 'claimed', slot .. 'expiries', slot .. 'closed')
end
return 0
