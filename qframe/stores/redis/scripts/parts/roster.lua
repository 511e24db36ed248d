-- A group's roster: its version, its members by when their lease passes, since when they are there
-- (with a minus before it for one that is to own nothing), and whose which slot is:
-- '<since> <epoch> <member>'.
local function roster_of(slot, name)
  local at = slot .. 'g:' .. name .. ':'
  return { slot = slot, name = name, key = at .. 'roster', members = at .. 'members',
           joined = at .. 'joined', owners = at .. 'owners' }
end

-- The roster with its version, '0' where nobody has ever attended; nothing if there is no such
-- group. A version stands only where the group does, which spares the look for it.
local function open_roster(slot, name)
  local roster = roster_of(slot, name)
  roster.version = redis.call('GET', roster.key) or '0'
  if roster.version == '0' and redis.call('HEXISTS', slot .. 'groups', name) == 0 then
    return nil
  end
  return roster
end

local function ring_roster(roster)
  local topic, number = string.match(roster.slot, '^qf:{(.*):(%d+)}:$')
  redis.call('PUBLISH', 'qf:bell:' .. topic .. ':' .. roster.name .. ':roster', number)
end
