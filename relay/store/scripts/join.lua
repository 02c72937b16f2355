-- join: a session begins to serve its mailbox. An exclusive one takes over from whoever served it before.
-- A sender only wants to hear of receipts: it serves nothing, takes nothing over and stays when somebody else does.
-- Uses shard
--
-- KEYS  SHARD
--       21+ per mailbox: one STREAM per lane, in the order of its `priorities`
-- ARGV  1 now_ms, instance, events_max, ended_ms, publish, wake_prefix,
--         mailboxes     each {address, priorities, session, mode, lease_ms, next_active_at_ms or 0}, where
--                       lease_ms is how long its instance is believed to be alive if that is not known yet
-- Returns {outbox entry or "", its fields, joined} with joined per mailbox
--         {depth, bytes, accepted_at of the oldest or -1, last id that is there now}

local mailboxes = open()
local joined = {}
local LOOK = 1000  -- how many entries of a lane are looked at for expiry; take ends the rest when it comes to them

local function end_expired(address, boxes, priorities)
  local some = false
  for n, box in ipairs(boxes) do
    for _, found in ipairs(redis.call('XRANGE', box, '-', '+', 'COUNT', LOOK)) do
      local expires_at = string.match(found[2][4], '^%d+\t%d+\t(%d+)')
      if tonumber(expires_at) <= book.now_ms then
        expire(address, box, tonumber(string.sub(priorities, n, n)), found[1], found[2])
        some = true
      end
    end
  end
  if some then settle_waiting(address, boxes) end
end


local next_key = SHARD_KEYS
for m, mailbox in ipairs(mailboxes) do
  local address, priorities, session, mode, lease_ms, next_active = unpack(mailbox)
  local boxes = {unpack(KEYS, next_key + 1, next_key + #priorities)}
  next_key = next_key + #priorities
  local staying = {}
  for line in string.gmatch(redis.call('HGET', presence, address) or '', '[^\n]+') do
    local other, other_mode = string.match(line, '^([^\t]+)\t(.+)$')
    if other == session then
      -- It is here already: the answer to an earlier join was lost.
    elseif mode == 'sender' or is_alive(other) and (other_mode == 'sender' or mode == 'shared' and other_mode ~= 'exclusive') then
      staying[#staying + 1] = line
    else
      for n, box in ipairs(boxes) do
        release_all(address, box, tonumber(string.sub(priorities, n, n)), other, 'replaced')
      end
      event('replaced', '', '', '', other, '', '', '', agent_head(address))
      tell(other, 'replaced\t' .. other)
    end
  end
  staying[#staying + 1] = session .. '\t' .. mode
  redis.call('HSET', presence, address, table.concat(staying, '\n'))
  redis.call('HSET', seen, address, book.now_ms .. '\t' .. next_active)
  redis.call('HSETNX', agents, address, '{"registered_at_ms":' .. book.now_ms .. '}')
  redis.call('HSETNX', instances, string.match(session, '^[^.]+'), book.now_ms + lease_ms)
  event('joined', '', '', '', session, mode, '', '', agent_head(address))

  end_expired(address, boxes, priorities)
  local depth, oldest, last = 0, -1, '0-0'
  for _, box in ipairs(boxes) do
    depth = depth + redis.call('XLEN', box)
    local first = redis.call('XRANGE', box, '-', '+', 'COUNT', 1)[1]
    if first then
      local accepted_at = tonumber((string.match(first[2][4], '^%d+\t(%d+)')))
      if oldest < 0 or accepted_at < oldest then oldest = accepted_at end
      local newest = redis.call('XREVRANGE', box, '+', '-', 'COUNT', 1)[1][1]
      if came_before(last, newest) then last = newest end
    end
  end
  joined[m] = {depth, tonumber(redis.call('HGET', bytes, address) or 0) + (book.bytes[address] or 0), oldest, last}
end

local sent, fields = flush()
return {sent, fields, joined}
