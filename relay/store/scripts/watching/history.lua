#!lua flags=no-writes
-- history: what of one tenant stands in a shard's event log, newest or oldest first, a page at a time.
--
-- KEYS  1 events  STREAM  every transition, one entry per call, its field `e1` has a line per event
-- ARGV  1 command    XREVRANGE for newest first, XRANGE for oldest first
--       2 first      where the look begins, as that command understands it
--       3 last       and where it ends
--       4 most_bytes how much is read at most
--       5 own_bytes  and how much of that may be what is wanted
--       6 kinds      "" or the only kinds that are wanted, each with a tab behind it
--       7 who        "" or who did it
--       8+ words     what must stand in a column of an event: the tenant first, the rarest last
-- A page goes on to the end of a millisecond, so it ends with a whole millisecond: what is left of the log is read from the next one on.
-- Returns {the last millisecond of the page, "" at the end of the look, rows} with rows {id, field, value}: an entry without
--         the events that are not wanted; one that has no others is left out

local events = KEYS[1]
local command, first, last, most_bytes, own_bytes, kinds, who = unpack(ARGV, 1, 7)
local STEP = 5  -- entries read at once; one holds up to some hundred kilobytes
most_bytes, own_bytes = tonumber(most_bytes), tonumber(own_bytes)
local words = {}
for n = 8, #ARGV do words[#words + 1] = '\t' .. ARGV[n] .. '\t' end
kinds = kinds ~= '' and '\t' .. kinds

-- is_wanted: `doer` is the column that says who did it, between tabs as a word.
local function is_wanted(event, doer)
  local columns = event .. '\t'
  if kinds and not string.find(kinds, '\t' .. string.match(columns, '^[^\t]*\t'), 1, true) then return false end
  for _, word in ipairs(words) do
    if not string.find(columns, word, 1, true) then return false end
  end
  return who == '' or string.find(columns, doer, 1, true)
end

-- doer_of: the same of the events of an instance; see doer in shard.
local function doer_of(instance)
  if string.sub(who, 1, #instance + 1) == instance .. '.' then return '\t' .. string.sub(who, #instance + 1) .. '\t' end
  return '\t' .. string.gsub(who, '^%.', '\\.') .. '\t'
end

-- lines_of: the lines of a value that are wanted, below its first one; nil if there are none. Most are of others: only
-- those are looked at that have the rarest word.
local function lines_of(value)
  local stop = string.find(value, '\n', 1, true) or #value
  local lines = {string.sub(value, 1, stop - 1)}
  local doer = doer_of(string.match(lines[1], '[^\t]*$'))
  local rarest = who ~= '' and doer or string.sub(words[#words], 1, -2)
  local found, start = string.find(value, rarest, stop, true), nil
  value = value .. '\n'
  while found do
    repeat start, stop = stop + 1, string.find(value, '\n', stop + 1, true) until stop > found
    local line = string.sub(value, start, stop - 1)
    if is_wanted(line, doer) then lines[#lines + 1] = line end
    found = string.find(value, rarest, stop, true)
  end
  return lines[2] and table.concat(lines, '\n')
end

local rows, read, own, at_ms = {}, 0, 0, nil
while true do
  local found = redis.call(command, events, first, last, 'COUNT', STEP)
  for _, entry in ipairs(found) do
    local its_ms = string.match(entry[1], '^%d+')
    if (read >= most_bytes or own >= own_bytes) and its_ms ~= at_ms then return {at_ms, rows} end
    at_ms, first = its_ms, '(' .. entry[1]
    local field, value = unpack(entry[2])
    local wanted = field == 'e1' and lines_of(value)
    read = read + #value
    if wanted then
      rows[#rows + 1] = {entry[1], field, wanted}
      own = own + #wanted
    end
  end
  if #found < STEP then return {'', rows} end
end
