-- What `lose` and `lose_window` have put down: [envelope, attempt, whose it was].
local function remember_lost(at, gone, now)
  local notes = {}
  for _, one in ipairs(gone) do
    local id = names_of(one[1])
    if id then
      notes[#notes + 1] = { id, -1, 5, one[2], one[3] }
    end
  end
  remember(at, notes, now)
end
