-- A stream's window: what lies between a group's floor and its read position.
-- So many settled messages are read in passing, rather than stepped over at the cost of a command.
local STEPPED_OVER = 1000

-- Takes the whole window back: what is unsettled in it leaves the line, lost once unless it is
-- parked behind a head. Behind one slow message there may be millions that are settled: of these
-- little is read. `group.gone` gets what is lost, for a history: of the receipt, which is older
-- than most, only whose it is.
local function lose_window(group, floor, read, ranges, now, receipt)
  local lost = 0
  local function visit(offset, envelope, published)
    if is_settled(ranges, offset) then
      return
    end
    local one = leaving(offset, envelope, published)
    one.tries, one.lost = 1, 1
    if park(group, one, now) then
      lost = lost + 1
      if group.gone then
        group.gone[lost] = { envelope, 1, string.match(receipt, '@.*') or '' }
      end
    end
  end
  local log, from = group.slot .. 'log', floor
  for i = 1, #ranges, 2 do
    if ranges[i + 1] - ranges[i] > STEPPED_OVER then
      each_message(log, from, ranges[i], visit)
      from = ranges[i + 1]
    end
  end
  each_message(log, from, read, visit)
  redis.call('HSET', group.cursor, 'floor', string.format('%.0f', read), 'settled', '',
    'receipt', '', 'lease', 0)
  return lost
end

-- Puts what the line has in [from, to) of parked keys behind these, and returns its offsets, as
-- ranges; and whether one has become a head.
local function divert(group, from, to, ranges, now)
  local coming, subjects, known = {}, {}, {}
  each_message(group.slot .. 'log', from, to, function(offset, envelope, published)
    local subject = not is_settled(ranges, offset) and subject_of(group, envelope, offset)
    if subject then
      coming[#coming + 1] = { subject, leaving(offset, envelope, published) }
      if known[subject] == nil then
        known[subject] = false
        subjects[#subjects + 1] = subject
      end
    end
  end)
  for i, value in ipairs(#subjects > 0 and read_many('HMGET', group.body, subjects) or {}) do
    known[subjects[i]] = value
  end
  local taken, following, has_head = {}, {}, false
  for _, one in ipairs(coming) do
    local subject, message = unpack(one)
    local value, offset = known[subject], message.seq
    if value then
      local last = following[subject]
      if not last then
        last = { seq = last_seq(group, subject, value), values = {} }
        following[subject] = last
      end
      if offset > last.seq then
        last.values[#last.values + 1] = pack_behind(message)
      else
        has_head = park(group, message, now) or has_head
      end
      if taken[#taken] == offset then
        taken[#taken] = offset + 1
      else
        taken[#taken + 1], taken[#taken + 2] = offset, offset + 1
      end
    end
  end
  for subject, last in pairs(following) do
    if #last.values > 0 then
      push_behind(group, subject, last.values)
    end
  end
  return taken, has_head
end
