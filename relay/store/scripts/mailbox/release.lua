#!lua flags=allow-oom
-- release: a holder gives messages back, nobody's fault: redelivered at once, in order, not counted.
-- Uses shard, records, mailboxes, consumers, exchanges, fence, holding
--
-- KEYS  SHARD
--       27 calls  HASH  see fence
--       28+ per mailbox: one STREAM per lane, in the order of its `priorities`
-- ARGV  CALL
--         exchange, part
--         mailboxes     each {address, priorities, session, entries}, where
--                       entries is {lane index, stream id, attempt or 0 for any, lane index, …}
-- Returns {outbox entry or "", its fields, refused, its entry in the event log or ""} with refused
--         {mailbox index, handle, "lock_lost" | "not_found", …}

local exchange, part, mailboxes = open()

return once(exchange, part, function()
  local refused = {}
  for m, mailbox, boxes in each(mailboxes, FENCED_KEYS, 0) do
    local address, priorities, session, entries = unpack(mailbox)
    settle_each(m, address, boxes, priorities, session, entries, refused, 'released', '', function(box, _, entry, row)
      redis.call('XCLAIM', box, GROUP, READY, 0, row[1], 'JUSTID')
      redis.call('ZREM', due, 'hold\t' .. address .. '\t' .. entry)
    end)
    end_push(address)
    drop_puller(boxes, session)
    wake(address, redis.call('HGET', presence, address), 'mail', '')
  end
  return refused
end)
