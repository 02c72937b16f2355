-- expire: end what has outlived its TTL at the front of mailboxes, then trim it away.
-- Uses shard
--
-- KEYS  SHARD
--       21+ per mailbox: one STREAM per lane, in the order of its `priorities`
-- ARGV  1 now_ms, instance, events_max, ended_ms, publish, wake_prefix,
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
  local count, last = 0, nil
  for _, found in ipairs(redis.call('XRANGE', box, '-', '+', 'COUNT', limit)) do
    local expires_at = string.match(found[2][4], '^%d+\t%d+\t(%d+)')
    if tonumber(expires_at) > book.now_ms then break end
    expire(address, box, priority, found[1], found[2])
    count, last = count + 1, found[1]
  end
  if last then redis.call('XTRIM', box, 'MINID', after(last)) end
  return count
end

local next_key = SHARD_KEYS
for m, mailbox in ipairs(mailboxes) do
  local address, priorities = unpack(mailbox)
  local boxes, count, more, oldest = {}, 0, 0, nil
  for n = 1, #priorities do
    boxes[n] = KEYS[next_key + n]
    local ended_here = expire_lane(address, boxes[n], tonumber(string.sub(priorities, n, n)))
    if ended_here == limit then more = 1 end
    count = count + ended_here
    local first = redis.call('XRANGE', boxes[n], '-', '+', 'COUNT', 1)[1]
    local at_ms = first and tonumber((string.match(first[2][4], '^%d+\t(%d+)')))
    if at_ms and (not oldest or at_ms < oldest) then oldest = at_ms end
  end
  next_key = next_key + #priorities
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
  if count > 0 then event('swept', '', '', '', '', count, '', '', agent_head(address)) end
  counts[m] = {count, more}
end

local sent, fields = flush()
return {sent, fields, counts}
