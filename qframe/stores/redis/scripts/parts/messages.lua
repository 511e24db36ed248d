-- The messages at some offsets, each as { envelope, published } at its own; sorts the offsets. An
-- entry is read once for all that it has of them. What another program wrote may claim the offsets
-- of other entries, and have nothing for them: so what it has nothing for is looked for anew.
local function messages_at(log, offsets)
  local wanted, found = {}, {}
  for _, offset in ipairs(offsets) do
    wanted[offset] = true
  end
  table.sort(offsets)
  for _, offset in ipairs(offsets) do
    local entry = not found[offset] and entry_at(log, offset)
    if entry then
      each_of_entry(entry, offset, offsets[#offsets] + 1, function(place, envelope, published)
        if wanted[place] and (place == offset or envelope ~= '') then
          found[place] = { envelope, published }
        end
      end)
    end
  end
  return found
end
