-- Changes the heads of a subject in all groups of a slot, or none if one of them is handed out.
local function change_heads(slot, kind, subject, change)
  local names = redis.call('HKEYS', slot .. 'groups')
  if redis.call('EXISTS', slot .. 'claimed') == 0 then
    names[#names + 1] = ''
  end
  local found = {}
  for _, name in ipairs(names) do
    local group = group_of(slot, name, kind)
    local head = load_head(group, subject)
    if head and head.receipt ~= '' then
      return 'doing'
    end
    if head then
      found[#found + 1] = { group = group, head = head }
    end
  end
  for _, each in ipairs(found) do
    change(each.group, each.head)
  end
  if #found > 0 then
    ring(slot)
  end
  return #found > 0 and 'done' or 'absent'
end
