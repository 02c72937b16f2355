#!lua flags=no-writes
-- history: what of one tenant stands in a shard's event log, newest or oldest first, a page at a time.
--
-- KEYS  1 events  STREAM  every transition, one entry per call, one field `e1` per event
-- ARGV  1 command    XREVRANGE for newest first, XRANGE for oldest first
--       2 first      where the look begins, as that command understands it
--       3 last       and where it ends
--       4 most_bytes how much is read at most
--       5 own_bytes  and how much of that may be what is wanted
--       6 kinds      "" or the only kinds that are wanted, each with a tab behind it
--       7+ words     what must stand in a column of an event: the tenant first
-- A page goes on to the end of a millisecond, so it ends with a whole millisecond: what is left of the log is read from the next one on.
-- Returns {the last millisecond of the page, "" at the end of the look, rows} with rows {id, event, event, …}, in the order of
--         the log inside an entry; entries without such events are left out

local events = KEYS[1]
local command, first, last, most_bytes, own_bytes, kinds = unpack(ARGV, 1, 6)
local STEP = 5  -- entries read at once; one holds up to some hundred kilobytes
most_bytes, own_bytes = tonumber(most_bytes), tonumber(own_bytes)
local words = {}
for n = 7, #ARGV do words[#words + 1] = '\t' .. ARGV[n] .. '\t' end
kinds = kinds ~= '' and '\t' .. kinds

local function is_wanted(event)
  if kinds and not string.find(kinds, '\t' .. string.match(event, '^[^\t]*\t'), 1, true) then return false end
  for _, word in ipairs(words) do
    if not string.find(event, word, 1, true) then return false end
  end
  return true
end

local rows, read, own, at_ms = {}, 0, 0, nil
while true do
  local found = redis.call(command, events, first, last, 'COUNT', STEP)
  for _, entry in ipairs(found) do
    local its_ms = string.match(entry[1], '^%d+')
    if (read >= most_bytes or own >= own_bytes) and its_ms ~= at_ms then return {at_ms, rows} end
    at_ms, first = its_ms, '(' .. entry[1]
    local row = {entry[1]}
    for n = 2, #entry[2], 2 do
      local event = entry[2][n]
      read = read + #event
      if is_wanted(event) then
        row[#row + 1] = event
        own = own + #event
      end
    end
    if #row > 1 then rows[#rows + 1] = row end
  end
  if #found < STEP then return {'', rows} end
end
