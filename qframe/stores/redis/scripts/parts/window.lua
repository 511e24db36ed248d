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

-- Takes the whole window back: what is unsettled in it leaves the line, lost once.
local function lose_window(group, floor, read, ranges, now)
  local lost = 0
  each_message(group.slot .. 'log', floor, read, function(offset, envelope, published)
    if not is_settled(ranges, offset) then
      leave(group, offset, envelope, published, 0, 1, 1, '', now)
      lost = lost + 1
    end
  end)
  redis.call('HSET', group.cursor, 'floor', string.format('%.0f', read), 'settled', '',
    'receipt', '', 'lease', 0)
  return lost
end
