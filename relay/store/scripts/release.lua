-- release: a holder gives messages back, nobody's fault: redelivered at once, in order, not counted.
-- Uses shard, holding
--
-- KEYS  SHARD
--       21+ per mailbox: one STREAM per lane, in the order of its `priorities`
-- ARGV  1 now_ms, instance, events_max, ended_ms, publish, wake_prefix,
--         mailboxes     each {address, priorities, session, entries}, where
--                       entries is {lane index, stream id, attempt or 0 for any, lane index, …}
-- Returns {outbox entry or "", its fields, refused} with refused {mailbox index, handle, "lock_lost" | "not_found", …}

local mailboxes = open()
local refused = {}

local next_key = SHARD_KEYS
for m, mailbox in ipairs(mailboxes) do
  local address, priorities, session, entries = unpack(mailbox)
  local boxes = {unpack(KEYS, next_key + 1, next_key + #priorities)}
  next_key = next_key + #priorities
  settle_each(m, boxes, priorities, session, entries, refused, 'released', '', function(box, _, entry, row)
    redis.call('XCLAIM', box, GROUP, READY, 0, row[1], 'JUSTID')
    redis.call('ZREM', due, 'hold\t' .. address .. '\t' .. entry)
  end)
  drop_puller(boxes, session)
  wake(address, redis.call('HGET', presence, address), 'mail', '')
end

local sent, fields = flush()
return {sent, fields, refused}
