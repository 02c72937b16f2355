#!lua flags=allow-oom
-- cut: cut off the oldest entries of the event log, and count those that nobody will read any more.
-- Uses shard
--
-- KEYS  SHARD
--       27 archived  STRING  up to which entry the events are archived; not there without an archive
-- ARGV  CALL
--         keep          how many entries stay
-- Returns {cut, of these not archived}

local keep = open()
local archived = KEYS[SHARD_KEYS + 1]
local AT_ONCE = 100  -- of what is archived: of the last run some may not be, and are counted with it
local read_up_to = redis.call('GET', archived)
local cut, unread = 0, 0

local function is_read()
  local first = read_up_to and redis.call('XRANGE', events, '-', '+', 'COUNT', 1)[1]
  return first and came_before(first[1], read_up_to)
end

local length = redis.call('XLEN', events)
while length > keep do
  local was_read = is_read()
  local count = redis.call('XTRIM', events, 'MAXLEN', was_read and math.max(keep, length - AT_ONCE) or keep)
  if not (was_read and is_read()) then unread = unread + count end
  cut, length = cut + count, length - count
end
if unread > 0 then redis.call('HINCRBY', totals, 'events_cut', unread) end
return {cut, unread}
