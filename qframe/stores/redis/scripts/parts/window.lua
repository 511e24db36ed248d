-- A stream's window: what lies between a group's floor and its read position.
-- Takes a message out of the line, to be queued for itself under its offset's text.
local function leave(group, offset, envelope, published, due, tries, lost, error, now)
  local subject = string.format('%.0f', offset)
  local head = { due = due, seq = offset, priority = 0, published = published, tries = tries,
                 envelope = envelope, lost = lost, given = 0, receipt = '', error = error }
  redis.call('HSET', group.body, subject, pack_head(head))
  write_state(group, subject, head)
  place(group, subject, head, now)
end

-- So many settled messages are read in passing, rather than stepped over at the cost of a command.
local STEPPED_OVER = 1000

-- Takes the whole window back: what is unsettled in it leaves the line, lost once. Behind one slow
-- message there may be millions that are settled: of these little is read. `group.gone` gets what
-- is lost, for a history: of the receipt, which is older than most, only whose it is.
local function lose_window(group, floor, read, ranges, now, receipt)
  local lost = 0
  local function visit(offset, envelope, published)
    if not is_settled(ranges, offset) then
      leave(group, offset, envelope, published, 0, 1, 1, '', now)
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
