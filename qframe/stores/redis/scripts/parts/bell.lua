-- Tells those who sleep that this slot may have something new. The flag is set by a pull that found
-- nothing, in the same step, so that no message falls between the look and the sleep. It costs one
-- command, and one more where somebody sleeps.
local function ring(slot)
  if redis.call('DEL', slot .. 'asleep') == 1 then
    local topic, number = string.match(slot, '^qf:{(.*):(%d+)}:$')
    redis.call('PUBLISH', 'qf:bell:' .. topic, number)
  end
end
