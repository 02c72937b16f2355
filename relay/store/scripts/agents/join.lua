#!lua flags=allow-oom
-- join: a session begins to serve its mailbox. An exclusive one takes over from whoever served it before.
-- A sender only wants to hear of receipts: it serves nothing, takes nothing over and stays when somebody else does.
-- Uses shard, records, mailboxes, consumers, exchanges, fence
--
-- KEYS  SHARD
--       27 calls  HASH  see fence
--       28+ per mailbox: one STREAM per lane, in the order of its `priorities`
-- ARGV  CALL
--         exchange, part
--         mailboxes     each {address, priorities, session, mode, lease_ms, next_active_at_ms or 0, asked_ms, window or ""}, where
--                       lease_ms is how long its instance is believed to be alive if that is not known yet, asked_ms
--                       when its client asked to be served, and window how many unconfirmed messages that will hold
-- Returns {outbox entry or "", its fields, joined, its entry in the event log or ""} with joined per mailbox "late" if a session that it would replace
--         asked after it, else
--         {depth, bytes, accepted_at of the oldest or -1, last id that is there now}

local exchange, part, mailboxes = open()
local MOST_ENDED, MOST_DUE = 20, 100  -- of a lane, of the shard: take and the workers end the rest as they come to it

-- end_if_expired: whether there is such an entry and it has expired; then it ends.
local function end_if_expired(address, box, priority, found)
  if not found or not is_readable(address, found[2]) then return false end
  local expires_at = tonumber((string.match(found[2][4], '^%d+\t%d+\t(%d+)')))
  if expires_at > book.now_ms then return false end
  expire(address, box, priority, found[1], found[2])
  return true
end

-- What has expired stands in front, unless its own TTL is short: then it stands in `due`.
local function end_expired(address, boxes, priorities)
  local some = false
  for n, box in ipairs(boxes) do
    local priority, ended_here = tonumber(string.sub(priorities, n, n)), 0
    while ended_here < MOST_ENDED and
        end_if_expired(address, box, priority, redis.call('XRANGE', box, '-', '+', 'COUNT', 1)[1]) do
      ended_here, some = ended_here + 1, true
    end
  end
  local prefix = 'ttl\t' .. address .. '\t'
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', due, '-inf', book.now_ms, 'LIMIT', 0, MOST_DUE)) do
    if string.sub(member, 1, #prefix) == prefix then
      local id, priority = string.match(member, '(%d+%-%d+)p?(%d?)$')
      priority = tonumber(priority) or 0
      local box = boxes[string.find(priorities, priority, 1, true)]
      some = end_if_expired(address, box, priority, redis.call('XRANGE', box, id, id)[1]) or some
    end
  end
  if some then settle_waiting(address, boxes, true) end
end

-- sort_out: of those who serve a mailbox, who stays beside this session and whom it replaces; nil if one of these asked
-- later: then this session's client has gone elsewhere, and only its join was slow.
local function sort_out(sessions, session, mode, asked_ms)
  local staying, leaving = {}, {}
  for line in string.gmatch(sessions or '', '[^\n]+') do
    local other, other_mode, other_asked_ms = string.match(line, '^([^\t]+)\t([^\t]+)\t?(%d*)')
    local alive = is_alive(other)
    if other == session then
      -- It is here already, and joins again.
    elseif mode == 'sender' or alive and (other_mode == 'sender' or mode == 'shared' and other_mode ~= 'exclusive') then
      staying[#staying + 1] = line
    elseif alive and (tonumber(other_asked_ms) or 0) > asked_ms then
      return nil
    else
      leaving[#leaving + 1] = other
    end
  end
  return staying, leaving
end

local function replace(address, boxes, priorities, other)
  for n, box in ipairs(boxes) do
    release_all(address, box, tonumber(string.sub(priorities, n, n)), other, 'replaced')
  end
  event('replaced', '', '', other, '', '', agent_key(address))
  tell(other, 'replaced\t' .. other)
end

local function whats_there(address, boxes)
  local depth, oldest, last = 0, -1, '0-0'
  for _, box in ipairs(boxes) do
    depth = depth + redis.call('XLEN', box)
    local first = redis.call('XRANGE', box, '-', '+', 'COUNT', 1)[1]
    if first then
      local at_ms = accepted_at(address, first)
      if oldest < 0 or at_ms < oldest then oldest = at_ms end
      local newest = redis.call('XREVRANGE', box, '+', '-', 'COUNT', 1)[1][1]
      if came_before(last, newest) then last = newest end
    end
  end
  return {depth, tonumber(redis.call('HGET', bytes, address) or 0) + (book.bytes[address] or 0), oldest, last}
end

return once(exchange, part, function()
  local joined = {}
  for m, mailbox, boxes in each(mailboxes, FENCED_KEYS, 0) do
    local address, priorities, session, mode, lease_ms, next_active, asked_ms, window = unpack(mailbox)
    local sessions = redis.call('HGET', presence, address)
    local staying, leaving = sort_out(sessions, session, mode, asked_ms)
    if staying then
      for _, other in ipairs(leaving) do replace(address, boxes, priorities, other) end
      staying[#staying + 1] = table.concat({session, mode, text(asked_ms), window}, '\t')
      if not sessions then tally(tenant_of(address), 'online', 1) end
      if mode == 'sender' then next_active = back_at(address) end
      redis.call('HSET', presence, address, table.concat(staying, '\n'))
      redis.call('HSET', seen, address, book.now .. '\t' .. text(next_active))
      redis.call('HSETNX', agents, address, '{"registered_at_ms":' .. book.now .. '}')
      enrol(address)
      redis.call('HSETNX', instances, string.match(session, '^[^.]+'), book.now_ms + lease_ms)
      event('joined', '', '', session, mode, '', agent_key(address))
      end_expired(address, boxes, priorities)
      joined[m] = whats_there(address, boxes)
    else
      joined[m] = 'late'
    end
  end
  return joined
end)
