#!lua flags=allow-oom
-- expire: end what has outlived its TTL at the front of mailboxes, then trim it away.
-- Uses shard, records, mailboxes, consumers, walking
--
-- KEYS  SHARD
--       27+ per mailbox: one STREAM per lane, in the order of its `priorities`
-- ARGV  CALL
--         limit         how many entries of a lane are looked at in this call
--         mailboxes     each {address, priorities}
-- Returns {outbox entry or "", its fields, ended} with ended per mailbox {how many were ended, 1 if more may be due else 0}

local limit, mailboxes = open()
book.timed = true
local counts = {}

local function after(id)
  local ms, n = string.match(id, '^(%d+)-(%d+)$')
  return ms .. '-' .. string.format('%.0f', tonumber(n) + 1)
end

-- Events and receipts come before the trim, and the pending list before both: a trimmed entry could not be read any
-- more, and would stay in the list as a ghost.
local function expire_lane(address, box, priority)
  local count, last, is_done, laid_aside = 0, nil, false, false
  local lane = walk({box}, 1, '', function(_, _, id, fields)
    if not is_readable(address, fields) then
      lay_aside(address, box, id, handle(id, priority))
      laid_aside = true
      return true
    end
    is_done = tonumber((string.match(fields[4], '^%d+\t%d+\t(%d+)'))) > book.now_ms
    if is_done or count == limit then return false end
    expire(address, box, priority, id, fields)
    count, last = count + 1, id
    return true
  end)
  if last and not laid_aside then redis.call('XTRIM', box, 'MINID', after(last)) end
  return count, lane ~= 0 and not is_done and count > 0
end

for m, mailbox, boxes in each(mailboxes, SHARD_KEYS, 0) do
  local address, priorities = unpack(mailbox)
  local count, more, oldest = 0, 0, nil
  local used = (redis.call('HGET', lanes, address) or '') .. '0'  -- to look into every lane would be most of the work
  for n, box in ipairs(boxes) do
    local priority = string.sub(priorities, n, n)
    if string.find(used, priority, 1, true) then
      local ended_here, is_cut = expire_lane(address, box, tonumber(priority))
      if is_cut then more = 1 end
      count = count + ended_here
      local first = redis.call('XRANGE', box, '-', '+', 'COUNT', 1)[1]
      local at_ms = first and accepted_at(address, first)
      if at_ms and (not oldest or at_ms < oldest) then oldest = at_ms end
    end
  end
  if oldest then
    redis.call('ZADD', waiting, oldest, address)
  else
    settle_waiting(address, boxes)
    -- Nobody serves it: an empty stream would stay for ever.
    if redis.call('HEXISTS', presence, address) == 0 then
      redis.call('DEL', unpack(boxes))
      redis.call('HDEL', lanes, address)
    end
  end
  if count > 0 then event('swept', '', '', '', count, '', agent_key(address)) end
  counts[m] = {count, more}
end

local sent, fields = flush()
return {sent, fields, counts}
