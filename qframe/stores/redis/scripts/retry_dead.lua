#!lua flags=allow-oom
-- Purpose: makes dead messages of a slot due again at once, attempts from zero.
-- KEYS[1] slot: the slot's prefix; what is touched begins with it.
-- ARGV[1] given (now), ARGV[2] kind, ARGV[3] name (group); then the members of those in `dead`, in
--   order.
-- Reply: how many. -2 if there is no such group.
-- Cost: 4 commands, and 7 to 19 for each.
-- Promise: one atomic step; one that is not dead any more is left alone.
local slot = KEYS[1]
local given, kind, name = ARGV[1], ARGV[2], ARGV[3]
--@include time many bell closed head places arrive text dead parking
local group, epoch = load_group(slot, name, kind)
if not epoch then
  return -2
end
if is_closed(slot) then
  return refusal()
end

-- Whether no message of its subject was published since.
local function is_newest(subject, published)
  local last = redis.call('HGET', group.following, subject)
    or redis.call('HGET', group.body, subject)
  return not last or published > unpack_head(last).published
end

local now, done = time_ms(given), 0
for i = 4, #ARGV do
  local member = ARGV[i]
  local record = redis.call('HGET', group.graves, member)
  if record then
    remove_dead_letters(group, { member })
    done = done + 1
    local published, size = struct.unpack('>I8I4', record)
    local subject, priority = unpack(cmsgpack.unpack(string.sub(record, 13, 12 + size)))
    local head = { due = now, seq = struct.unpack('>I8', member), priority = priority,
                   published = published, envelope = string.sub(record, 13 + size),
                   tries = 0, lost = 0, given = 0, receipt = '', error = '' }
    if kind == 'stream' then
      park(group, head, now, true)
    else
      count(group, 'published', -1)
      if kind == 'ordered' or is_newest(subject, published) then
        head.seq = redis.call('INCR', slot .. 'head') - 1
        queue(group, subject, head, now)
      end
    end
  end
end
if done > 0 then
  ring(slot)
end
return done
