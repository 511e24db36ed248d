-- Gives a group's part of a slot to another epoch: what is in doing there comes back, counted and
-- lost. `group.gone` gets what that is.
local function fence(group, epoch, now)
  redis.call('HSET', group.cursor, 'epoch', epoch)
  lose(group, redis.call('ZRANGE', group.doing, 0, -1), now)
  if group.kind == 'stream' then
    local cursor = redis.call('HMGET', group.cursor, 'floor', 'read', 'settled', 'receipt')
    local floor, read = tonumber(cursor[1]), tonumber(cursor[2])
    if floor < read then
      lose_window(group, floor, read, load_ranges(cursor[3]), now, cursor[4])
    end
  end
end

-- The halves of an epoch, as numbers: Lua compares texts by the server's locale.
local function halves(text)
  return tonumber(string.sub(text, 1, 8), 16), tonumber(string.sub(text, 9), 16)
end
