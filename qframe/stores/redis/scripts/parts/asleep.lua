-- Notes that a slot's owner sleeps whose pull stands there, in the same step in which it has found
-- nothing. `asleep` is 1 where somebody only waits for the bell; behind that it has a msgpack array
-- for each pull that stands: group, epoch, receipt, lease (ms), until when nothing else falls due
-- (0 for ever), address. What other groups have noted stays.
local function stand(slot, name, ...)
  local plain, standing = '', {}
  for _, other in ipairs({ cmsgpack.unpack(redis.call('GET', slot .. 'asleep') or '') }) do
    if type(other) ~= 'table' then
      plain = '1'
    elseif other[1] ~= name then
      standing[#standing + 1] = cmsgpack.pack(other)
    end
  end
  standing[#standing + 1] = cmsgpack.pack({ name, ... })
  redis.call('SET', slot .. 'asleep', plain .. table.concat(standing))
end
