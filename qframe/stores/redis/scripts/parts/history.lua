-- How attempts have ended, of topics that keep that: `history` has by id the entries of a message,
-- the last 20, each behind its length ('>I2'); `ended` when the last of them ended, by id.
--   entry  '>I8I8' began (0: not known), ended; '>I1I4' verdict (1 ack, 2 retry, 3 dead, 4 release,
--          5 lost, 6 edited, 7 cancelled), attempt; and in lines: whose it was (what follows an
--          `@`), the error, the place
-- A note is [id, took (ms; -1: not known), verdict, attempt, the entry's lines, key or nothing].
-- A key stands there too, behind a NUL, which no id has: with the id of its message that has ended
-- last by verdict 1, 3 or 7, and in `ended` when.
local MOST_ENTRIES = 20

local function remember(at, notes, now)
  local ids, entries = {}, {}
  for _, note in ipairs(notes) do
    if not entries[note[1]] then
      ids[#ids + 1], entries[note[1]] = note[1], ''
    end
  end
  if #ids == 0 then
    return
  end
  for i, before in ipairs(read_many('HMGET', at .. 'history', ids)) do
    entries[ids[i]] = before or ''
  end
  local last = {}
  for _, note in ipairs(notes) do
    if (note[6] or '') ~= '' and (note[3] == 1 or note[3] == 3 or note[3] == 7) then
      last[note[6]] = note[1]
    end
    local kept, size, place = entries[note[1]], 0, 1
    while place < #kept do
      place = place + 2 + struct.unpack('>I2', kept, place)
      size = size + 1
    end
    if place ~= #kept + 1 then
      kept, size = '', 0 -- somebody else has changed it, and what follows would be unreadable too
    end
    if size >= MOST_ENTRIES then
      kept = string.sub(kept, 3 + struct.unpack('>I2', kept))
    end
    local began = note[2] < 0 and 0 or math.max(0, now - note[2])
    entries[note[1]] = kept
      .. struct.pack('>I2I8I8I1I4', 21 + #note[5], began, now, note[3], note[4]) .. note[5]
  end
  local values, times = {}, {}
  for _, id in ipairs(ids) do
    values[#values + 1], values[#values + 2] = id, entries[id]
    times[#times + 1], times[#times + 2] = string.format('%.0f', now), id
  end
  for key, id in pairs(last) do
    values[#values + 1], values[#values + 2] = '\0' .. key, id
    times[#times + 1], times[#times + 2] = string.format('%.0f', now), '\0' .. key
  end
  call_many('HSET', at .. 'history', values)
  call_many('ZADD', at .. 'ended', times)
end

-- Those that were settled, of as many notes as there are replies; false for one without an id.
local function remember_settled(at, notes, replies, now)
  local settled = {}
  for i, note in ipairs(notes) do
    if note and replies[i] == 's' then
      settled[#settled + 1] = note
    end
  end
  remember(at, settled, now)
end
