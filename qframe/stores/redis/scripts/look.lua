#!lua flags=no-writes
-- Purpose: tells where a subject of a group stands at one moment, for the audit.
-- KEYS[1] slot: the slot's prefix; what is read begins with it.
-- ARGV[1] kind, ARGV[2] name (group), ARGV[3] subject, ARGV[4] member (one found in `todo`, or '').
-- Reply: [its value in `body`; in `tries`; how many stand behind it; then 1 or 0 each: whether it
--   stands in waiting, in retry, in todo as itself, in doing, and in todo by the member given,
--   which is another's]. Values are '' where there is none.
-- Cost: 8 commands.
-- Promise: one atomic look; nothing is changed.
local slot = KEYS[1]
local kind, name, subject, member = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
--@include head
local group = group_of(slot, name, kind)
local function stands(key, what)
  return redis.call('ZSCORE', key, what) and 1 or 0
end

local body = redis.call('HGET', group.body, subject) or ''
local own = string.sub(body, 1, 16) .. subject
local behind
if kind == 'ordered' or kind == 'stream' then
  behind = redis.call('LLEN', behind_of(group, subject))
else
  behind = redis.call('HEXISTS', group.following, subject)
end
local stray = stands(group.todo, member)
return { body, redis.call('HGET', group.tries, subject) or '', behind,
         stands(group.waiting, subject), stands(group.retry, subject), stands(group.todo, own),
         stands(group.doing, subject), member ~= own and stray or 0 }
