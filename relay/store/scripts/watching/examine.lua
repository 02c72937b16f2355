#!lua flags=no-writes
-- examine: what is wrong with one lane of a mailbox: its entries, its group and the index must agree.
-- Uses shard, records, consumers
--
-- KEYS  SHARD
--       27 box  STREAM  the lane
-- ARGV  CALL
--         address, priority
--         after         behind which stream id to go on; "" for the beginning
--         limit         how many entries to look at
-- Returns {next after or "" at the end, ghosts, stranded, unindexed, orphaned, leaked, unreadable}: the ids in this
--         page, but of leaked the names of consumers, told with the first page only

local address, priority, after, limit = open()
local box = KEYS[SHARD_KEYS + 1]
local from = after == '' and '-' or '(' .. after
local ghosts, stranded, unindexed, orphaned, leaked, unreadable = {}, {}, {}, {}, {}, {}

if redis.call('EXISTS', box) == 0 then return {'', ghosts, stranded, unindexed, orphaned, leaked, unreadable} end

local delivered = '0-0'
for _, group in ipairs(redis.call('XINFO', 'GROUPS', box)) do
  local named = {}
  for n = 1, #group, 2 do named[group[n]] = group[n + 1] end
  if named['name'] == GROUP then delivered = named['last-delivered-id'] end
end

local entries = redis.call('XRANGE', box, from, '+', 'COUNT', limit)
local rows = pending(box, from, '+', limit)

-- Where this page ends: a full list may go on behind its last id, so the other one is looked at up to there only.
local page_end = nil
if #entries == limit then page_end = entries[#entries][1] end
if #rows == limit and (not page_end or came_before(rows[#rows][1], page_end)) then page_end = rows[#rows][1] end
local function in_page(id)
  return not page_end or came_before(id, page_end)
end

local function is_registered(consumer)
  local sessions = '\n' .. (redis.call('HGET', presence, address) or '')
  return string.find(sessions, '\n' .. consumer .. '\t', 1, true) ~= nil
end

local owner = {}
for _, row in ipairs(rows) do owner[row[1]] = row[2] end
local is_there = {}
for _, entry in ipairs(entries) do
  local id, fields = entry[1], entry[2]
  if in_page(id) then
    is_there[id] = true
    if not owner[id] and came_before(id, delivered) then stranded[#stranded + 1] = id end
    if not is_readable(address, fields) then
      unreadable[#unreadable + 1] = id
    elseif redis.call('HGET', ids, string.match(fields[2], KEY)) ~= handle(id, priority) then
      unindexed[#unindexed + 1] = id
    end
  end
end
for _, row in ipairs(rows) do
  local id, consumer = row[1], row[2]
  if in_page(id) then
    local is_held = consumer ~= READY and consumer ~= PARKED and not is_registered(consumer)
    if not is_there[id] then
      ghosts[#ghosts + 1] = id
    elseif is_held and not redis.call('ZSCORE', due, 'hold\t' .. address .. '\t' .. handle(id, priority)) then
      orphaned[#orphaned + 1] = id
    end
  end
end

if after == '' then
  for _, consumer in ipairs(in_group('XINFO', 'CONSUMERS', box, GROUP) or {}) do
    local named = {}
    for n = 1, #consumer, 2 do named[consumer[n]] = consumer[n + 1] end
    local name = named['name']
    if name ~= READY and name ~= PARKED and named['pending'] == 0 and not is_registered(name) then
      leaked[#leaked + 1] = name
    end
  end
end

return {page_end or '', ghosts, stranded, unindexed, orphaned, leaked, unreadable}
