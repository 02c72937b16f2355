#!lua flags=allow-oom
-- overdue: what was to happen to an entry at a time that has come: a hold ends, a delay ends, a short TTL ends, a shadow ends.
-- Every member is checked again here, so that a step taken since the worker looked stays as it is.
-- Uses shard, records, mailboxes, consumers, failing, shadows
--
-- KEYS  SHARD
--       27+ per mailbox: one STREAM per lane, in the order of its `priorities`, then its dead-letter box, STREAM
-- ARGV  CALL
--         dead_max      how many a dead-letter box holds
--         mailboxes     each {address, priorities, members}, where members is
--                       {kind, lane index, stream id, kind, …} and kind is "hold" | "park" | "ttl" | "bury" | "shadow"
-- Returns {outbox entry or "", its fields, became} with became per member "expired" | "failed" | "dead" | "ready" | "unreadable" | "nothing"

local dead_max, mailboxes = open()
local became = {}

local function is_session(consumer)
  return consumer ~= READY and consumer ~= PARKED
end

local function end_hold(address, box, dead, priority, row, fields)
  event('overdue', handle(row[1], priority), row[4], row[2], 'ack timeout', held_ms(row), key_of(address, fields))
  tell(row[2], 'overdue\t' .. row[2] .. '\t' .. handle(row[1], priority))
  local now_is = fail(address, box, dead, dead_max, row, priority, fields, row[2], 'ack timeout', '"ack timeout"', true, 0)
  -- Another session should have it before the one that let it lie, which looks a moment later by itself.
  drop_puller({box}, row[2])
  if now_is == 'ready' then wake(address, redis.call('HGET', presence, address), 'mail', row[2]) end
  return now_is == 'dead' and 'dead' or 'failed'
end

-- set_aside: a record that cannot be read is buried whatever was due, also if somebody holds it.
local function set_aside(address, box, dead, priority, row, fields)
  local word = bury(address, box, dead, dead_max, row[1], priority, row[4], fields, '', UNREADABLE, '', '', false)
  if is_session(row[2]) and row[2] ~= '' then tell(row[2], 'lost\t' .. row[2] .. '\t' .. handle(row[1], priority)) end
  return word == 'dead' and 'unreadable' or 'nothing'
end

local function act(kind, address, box, dead, priority, id)
  if kind == 'shadow' then
    local shadow = shadows_of(address .. '\n' .. handle(id, priority), 1)[1]
    if shadow then dispel('expired', shadow) end
    return shadow and 'expired' or 'nothing'
  end
  local found = redis.call('XRANGE', box, id, id)[1]
  if not found then return 'nothing' end
  local row, fields = pending(box, id, id, 1)[1], found[2]
  if not is_readable(address, fields) then return set_aside(address, box, dead, priority, row or {id, '', 0, 1}, fields) end
  if kind == 'ttl' then
    expire(address, box, priority, id, fields)
    return 'expired'
  end
  if kind == 'hold' then
    if not row or not is_session(row[2]) then return 'nothing' end
    return end_hold(address, box, dead, priority, row, fields)
  end
  if row and row[2] ~= PARKED then return 'nothing' end
  if kind == 'bury' and row then
    local reason = string.match(redis.call('HGET', failures, address .. '\t' .. handle(id, priority)) or '', '([^\t\n]*)$')
    return bury(address, box, dead, dead_max, id, priority, row[4], fields, '', reason, '', '') == 'dead' and 'dead' or 'nothing'
  end
  end_push(address)
  if row then redis.call('XCLAIM', box, GROUP, READY, 0, id, 'JUSTID') end
  wake(address, redis.call('HGET', presence, address), 'mail', '')
  return 'ready'
end

for _, mailbox, boxes, dead in each(mailboxes, SHARD_KEYS, 1) do
  local address, priorities, members = unpack(mailbox)
  local ended_some = false
  for n = 1, #members, 3 do
    local kind, lane, id = members[n], members[n + 1], members[n + 2]
    local priority = tonumber(string.sub(priorities, lane, lane))
    local member = kind .. '\t' .. address .. '\t' .. handle(id, priority)
    local at_ms = redis.call('ZSCORE', due, member)
    local word = 'nothing'
    if at_ms and tonumber(at_ms) <= book.now_ms then
      redis.call('ZREM', due, member)
      word = act(kind, address, boxes[lane], dead, priority, id)
    end
    ended_some = ended_some or word == 'expired' or word == 'dead' or word == 'unreadable'
    became[#became + 1] = word
  end
  if ended_some then settle_waiting(address, boxes) end
end

local sent, fields = flush()
return {sent, fields, became}
