-- Answers the pulls that stand in a slot with the one message that has come, and rings where others
-- sleep too. It runs no command that a publisher needs no right for anyway.
local LARGEST = 65536

-- Sends a delivery to where its pull stands; returns whether somebody listens there.
--   '>I4c16I8I8I2I2I4' slot, epoch, seq, published at, lengths; the pull's receipt, the receipt to
--   settle by, the subject (empty for a message of a stream's line), the envelope
local function send(slot, pull, seq, now, receipt, subject, envelope)
  local number = string.match(slot, ':(%d+)}:$')
  return redis.call('PUBLISH', pull.address, struct.pack('>I4c16I8I8I2I2I4', number, pull.epoch,
    seq, now, #pull.receipt, #receipt, #subject)
    .. pull.receipt .. receipt .. subject .. envelope) > 0
end

-- `hand_out` hands the message out by a pull; it returns whether it could.
local function answer(slot, asleep, now, envelope, hand_out)
  redis.call('DEL', slot .. 'asleep')
  local is_heard = #envelope <= LARGEST
  for _, noted in ipairs(is_heard and { cmsgpack.unpack(asleep) } or {}) do
    local done = false
    if type(noted) == 'table' then
      local name, epoch, receipt, lease, till, address = unpack(noted)
      local pull = { name = name, epoch = epoch, receipt = receipt, address = address,
                     lease = string.format('%.0f', now + lease) }
      done = (till == 0 or till > now) and hand_out(pull)
    end
    is_heard = done and is_heard
  end
  if not is_heard then
    local topic, number = string.match(slot, '^qf:{(.*):(%d+)}:$')
    redis.call('PUBLISH', 'qf:bell:' .. topic, number)
  end
end
