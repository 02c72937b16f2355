#!lua flags=no-writes
-- holds: who holds messages of some mailboxes, how many, and for how long.
-- Uses shard
--
-- KEYS  SHARD
--       27+ per mailbox: one STREAM per lane, in the order of its `priorities`
-- ARGV  CALL
--         most          holders of a lane that are told
--         mailboxes     each {address, priorities}
-- Returns per mailbox {session, how many it holds of the lane, ms since it last took, handle of the oldest, for how many ms it holds that, …}

local most, mailboxes = open()
local results, next_key = {}, SHARD_KEYS

local function consumers_of(box)
  local found = redis.pcall('XINFO', 'CONSUMERS', box, GROUP)
  return found.err and {} or found
end

-- The rows of XINFO are pairs of names and values, in an order that is the server's.
local function named(row)
  local values = {}
  for n = 1, #row, 2 do values[row[n]] = row[n + 1] end
  return values
end

local function note(rows, box, priority, session, count, idle)
  local oldest = pending(box, '-', '+', 1, session)[1]
  if not oldest then return end
  rows[#rows + 1] = session
  rows[#rows + 1] = count
  rows[#rows + 1] = idle
  rows[#rows + 1] = handle(oldest[1], priority)
  rows[#rows + 1] = oldest[3]
end

for m, mailbox in ipairs(mailboxes) do
  local _, priorities = unpack(mailbox)
  local rows = {}
  for n = 1, #priorities do
    local box, priority, told = KEYS[next_key + n], tonumber(string.sub(priorities, n, n)), 0
    for _, row in ipairs(consumers_of(box)) do
      local values = named(row)
      if values.pending > 0 and values.name ~= READY and values.name ~= PARKED and told < most then
        note(rows, box, priority, values.name, values.pending, values.idle)
        told = told + 1
      end
    end
  end
  next_key = next_key + #priorities
  results[m] = rows
end
return results
