#!lua flags=allow-oom
-- Purpose: makes edits of heads that are not handed out, and of dead letters.
-- KEYS[1] slot: the slot's prefix; what is touched begins with it.
-- ARGV[1] given (now), ARGV[2] kind; then for each edit three: in msgpack [becomes (1 due,
--   2 edited, 3 cancelled, 4 dead, 5 retried, 6 dropped), subject, group (false: all that have it),
--   seq (false: any), seen (only if a group has it due then; false: always), due (ms since 1970;
--   false: it stays), error, force (true for one that a worker has, too), lines (of the entry in
--   the history; '' where none is kept)]; body, as msgpack bytes ('': it and the headers stay);
--   headers, as msgpack.
-- Reply: for each edit done, absent (no group has it so) or doing (a worker has it, and nothing
--   changed). -2, and nothing has changed, if one is for a group that there is not.
-- Cost: 3 commands, 2 where edits are for all groups, 1 for each group that is named; and for each
--   edit 2 for each head, and 1 to 19 for what becomes of it, 3 of them for a history.
-- Promise: one atomic step, over all groups of the slot; a letter that is not dead any more, and a
--   head with another number, is left alone.
local slot = KEYS[1]
local given, kind = ARGV[1], ARGV[2]
--@include time many bell closed head places arrive text dead parking log history
if is_closed(slot) then
  return refusal()
end
local now = time_ms(given)
local DUE, EDITED, CANCELLED, DEAD, RETRIED, DROPPED = 1, 2, 3, 4, 5, 6

local function all_groups()
  local names = redis.call('HKEYS', slot .. 'groups')
  if redis.call('EXISTS', slot .. 'claimed') == 0 then
    names[#names + 1] = ''
  end
  local groups = {}
  for i, name in ipairs(names) do
    groups[i] = group_of(slot, name, kind)
  end
  return groups
end

-- The envelope is [id, key, headers, body]: id and key stay. What is none dies of itself.
local function rewritten(envelope, edit)
  local begins = ({ [0x94] = 2, [0xdc] = 4, [0xdd] = 6 })[string.byte(envelope)]
  local after_id = begins and skip(envelope, begins)
  local after_key = after_id and skip(envelope, after_id)
  return after_key and string.sub(envelope, 1, after_key - 1) .. edit.headers .. edit.body
    or envelope
end

local function set_due(group, subject, head, due)
  take_out(group, subject, head)
  head.due = due
  redis.call('HSET', group.body, subject, pack_head(head))
  place(group, subject, head, now)
end

local change = {
  [DUE] = function(group, head, edit)
    if head.due > now then
      set_due(group, edit.subject, head, now)
    end
  end,
  [EDITED] = function(group, head, edit)
    if edit.body ~= '' then
      head.envelope = rewritten(head.envelope, edit)
    end
    if edit.due then
      set_due(group, edit.subject, head, edit.due)
    else
      redis.call('HSET', group.body, edit.subject, pack_head(head))
    end
  end,
  [CANCELLED] = function(group, head, edit)
    local subject = edit.subject
    take_out(group, subject, head)
    count(group, 'cancelled', 1 + length_behind(group, subject))
    redis.call('HDEL', group.body, subject)
    redis.call('HDEL', group.tries, subject)
    redis.call('DEL', behind_of(group, subject))
  end,
  [DEAD] = function(group, head, edit)
    if head.receipt == '' then
      take_out(group, edit.subject, head)
    end
    add_dead_letter(group, edit.subject, head, now, edit.error, head.error ~= '' and head.error)
    advance(group, edit.subject, head, now, 0)
  end,
}

-- Keeps in the history of a group what was done to a head: 6 edited, 7 cancelled.
local function remember_act(group, head, edit)
  local id, key = names_of(head.envelope)
  if id and edit.lines ~= '' then
    local verdict = edit.becomes == EDITED and 6 or 7
    remember(group.at, { { id, -1, verdict, head.tries, edit.lines, key and edit.subject } }, now)
  end
end

-- Changes the heads of a subject in all groups that an edit is for, or none if one of them is
-- handed out, or none of them is due at the moment that was seen.
local function rewrite_heads(groups, edit)
  local found, fits = {}, not edit.seen
  for _, group in ipairs(groups) do
    local head = load_head(group, edit.subject)
    if head and (not edit.seq or head.seq == edit.seq) then
      if head.receipt ~= '' and not edit.force then
        return 'doing'
      end
      found[#found + 1] = { group = group, head = head }
      fits = fits or head.due == edit.seen
    end
  end
  if #found == 0 or not fits then
    return 'absent'
  end
  for _, each in ipairs(found) do
    change[edit.becomes](each.group, each.head, edit)
    remember_act(each.group, each.head, edit)
  end
  return 'done'
end

-- Whether no message of its subject was published since.
local function is_newest(group, subject, published)
  local last = redis.call('HGET', group.following, subject)
    or redis.call('HGET', group.body, subject)
  return not last or published > unpack_head(last).published
end

local function retry(group, seq, record)
  local published, size = struct.unpack('>I8I4', record)
  local subject, priority = unpack(cmsgpack.unpack(string.sub(record, 13, 12 + size)))
  local head = { due = now, seq = seq, priority = priority, published = published,
                 envelope = string.sub(record, 13 + size), tries = 0, lost = 0, given = 0,
                 receipt = '', error = '' }
  if kind == 'stream' then
    park(group, head, now, true)
    return
  end
  count(group, 'published', -1)
  if kind == 'ordered' or is_newest(group, subject, published) then
    head.seq = redis.call('INCR', slot .. 'head') - 1
    queue(group, subject, head, now)
  end
end

local function settle_dead(group, edit)
  local member = struct.pack('>I8', edit.seq)
  local record = edit.becomes == RETRIED and redis.call('HGET', group.graves, member)
  local is_readable = record and #record >= 12
  if edit.becomes == RETRIED and not is_readable
    or remove_dead_letters(group, { member }) == 0 then
    return 'absent'
  end
  if edit.becomes == DROPPED then
    count(group, 'cancelled', 1)
  else
    retry(group, edit.seq, record)
  end
  return 'done'
end

-- The groups that an edit is for, each of which is loaded once.
local loaded, all = {}, nil
local function groups_for(name)
  if not name then
    all = all or all_groups()
    return all
  end
  if not loaded[name] then
    local group, epoch = load_group(slot, name, kind)
    loaded[name] = epoch and { group }
  end
  return loaded[name]
end

local edits = {}
for i = 3, #ARGV, 3 do
  local becomes, subject, name, seq, seen, due, error, force, lines =
    unpack(cmsgpack.unpack(ARGV[i]))
  local groups = groups_for(name)
  if not groups then
    return -2
  end
  edits[#edits + 1] = { becomes = becomes, subject = subject, groups = groups, seq = seq,
                        seen = seen, due = due, body = ARGV[i + 1], headers = ARGV[i + 2],
                        error = error, force = force, lines = lines }
end
local replies, has_changed = {}, false
for i, edit in ipairs(edits) do
  replies[i] = edit.becomes >= RETRIED and settle_dead(edit.groups[1], edit)
    or edit.becomes < RETRIED and rewrite_heads(edit.groups, edit)
  has_changed = has_changed or (replies[i] == 'done' and edit.becomes ~= DROPPED)
end
if has_changed then
  ring(slot)
end
return replies
