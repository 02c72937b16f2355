#!lua flags=no-writes
-- describe: what there is to say of agents and their mailboxes.
-- Uses shard, records, mailboxes, shadows, states
--
-- KEYS  SHARD
--       27 paused  HASH  see states
--       28+ per agent: one STREAM per lane, in the order of its `priorities`, then its dead-letter box, STREAM
-- ARGV  CALL
--         viewer        who asks: to one whom an agent has blocked, its shadows are mail; "" to see what there is
--         most_sessions how many sessions of an agent are told
--         agents        each {address, priorities}, which are "9876543210"
-- Returns per agent {registration or "", depth, bytes, accepted_at of the oldest or -1, online 0|1, seen or "", caps or "", dead,
--         held, delayed, why what waits is not delivered or "", its pause or "", whose the pause is or "", sessions},
--         with sessions {name, mode, window or -1, how many it holds, alive 0|1, name, …}

local viewer, most_sessions, described = open()
local results, addresses, read = {}, {}, 0
local MOST_BYTES = 1048576  -- read in one call to tell how old the oldest entries are
for m, agent in ipairs(described) do addresses[m] = agent[1] end
local used = redis.call('HMGET', lanes, unpack(addresses))
local blocked = viewer ~= '' and redis.call('HMGET', blocks, unpack(addresses)) or {}

local function first_accepted_at(box, address)
  -- Beyond what may be read: since when the mailbox has not been empty.
  if read > MOST_BYTES then return tonumber(redis.call('ZSCORE', waiting, address)) end
  local first = redis.call('XRANGE', box, '-', '+', 'COUNT', 1)[1]
  read = read + #(first[2][6] or '')
  return accepted_at(address, first)
end

-- sessions_of: who serves a mailbox, flat.
local function sessions_of(lines, by_consumer)
  local flat = {}
  for session, mode, window in string.gmatch(lines or '', SESSION) do
    if #flat == 5 * most_sessions then break end
    flat[#flat + 1] = session
    flat[#flat + 1] = mode
    flat[#flat + 1] = tonumber(window) or -1
    flat[#flat + 1] = by_consumer[session] or 0
    flat[#flat + 1] = is_alive(session) and 1 or 0
  end
  return flat
end

local later = delayed_here()
for m, agent, boxes, dead in each(described, STATE_KEYS, 1) do
  local address, depth, oldest = agent[1], 0, -1
  if not used[m] then boxes = {boxes[#boxes]} end
  for _, box in ipairs(boxes) do
    local here = redis.call('XLEN', box)
    depth = depth + here
    local at_ms = here > 0 and first_accepted_at(box, address)
    if at_ms and (oldest < 0 or at_ms < oldest) then oldest = at_ms end
  end
  local size = tonumber(redis.call('HGET', bytes, address) or 0) or 0
  if lists(blocked[m], viewer) then
    local count, its_bytes = shadow_size(address)
    depth, size = depth + count, size + its_bytes
    local at_ms = count > 0 and string.match(shadows_of(address, 1)[1], '^[^\n]*\n[^\n]*\n%d+\n%d+\t(%d+)')
    if at_ms and (oldest < 0 or tonumber(at_ms) < oldest) then oldest = tonumber(at_ms) end
  end
  local lines, pause, whose = redis.call('HGET', presence, address), pause_of(address)
  local by_consumer, holds = holds_of(boxes)
  local delayed = math.min(depth - holds.held, math.max(holds.parked, later[address] or 0))
  local why = depth > holds.held + delayed and why_waiting(address, lines, by_consumer) or ''
  results[m] = {redis.call('HGET', agents, address) or '', depth, size, oldest,
    is_online(lines) and 1 or 0, redis.call('HGET', seen, address) or '',
    redis.call('HGET', caps, address) or '', redis.call('XLEN', dead), holds.held, delayed, why, pause or '', whose or '',
    sessions_of(lines, by_consumer)}
end
return results
