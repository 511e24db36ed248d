-- Changes the heads of a subject in all groups of a slot, or none if one of them is handed out, or
-- none of them is due at the moment `seen`, unless that is ''.
local function change_heads(slot, kind, subject, seen, change)
  local names = redis.call('HKEYS', slot .. 'groups')
  if redis.call('EXISTS', slot .. 'claimed') == 0 then
    names[#names + 1] = ''
  end
  local found, fits = {}, seen == ''
  for _, name in ipairs(names) do
    local group = group_of(slot, name, kind)
    local head = load_head(group, subject)
    if head and head.receipt ~= '' then
      return 'doing'
    end
    if head then
      found[#found + 1] = { group = group, head = head }
      fits = fits or head.due == tonumber(seen)
    end
  end
  if #found == 0 or not fits then
    return 'absent'
  end
  for _, each in ipairs(found) do
    change(each.group, each.head)
  end
  ring(slot)
  return 'done'
end

-- Keeps in the history of a group what was done to a head: 6 edited, 7 cancelled.
local function remember_act(group, subject, head, verdict, lines, now)
  local id, key = names_of(head.envelope)
  if id then
    remember(group.at, { { id, -1, verdict, head.tries, lines, key and subject } }, now)
  end
end
