#!lua flags=allow-oom
-- nack: a holder failed. The attempt is counted; the message comes again later, or goes to the dead-letter box.
-- Uses shard, records, mailboxes, consumers, exchanges, fence, holding, failing
--
-- KEYS  SHARD
--       27 calls  HASH  see fence
--       28+ per mailbox: one STREAM per lane, in the order of its `priorities`, then its dead-letter box, STREAM
-- ARGV  CALL
--         exchange, part
--         dead_max      how many a dead-letter box holds
--         mailboxes     each {address, priorities, session, backlog_end, retry, delay_ms or -1, reason, reason as JSON,
--                       entries}, where
--                       backlog_end  the last id that was there when the session began
--                       entries      {lane index, stream id, attempt or 0 for any, lane index, …}
-- Returns {outbox entry or "", its fields, refused, its entry in the event log or ""} with refused
--         {mailbox index, handle, "lock_lost" | "not_found", …}

local exchange, part, dead_max, mailboxes = open()
book.timed = true

return once(exchange, part, function()
  local refused = {}
  for m, mailbox, boxes, dead in each(mailboxes, FENCED_KEYS, 1) do
    local address, priorities, session, backlog_end, retry, delay_ms, reason, reason_json, entries = unpack(mailbox)
    local buried, ready = false, false
    settle_each(m, address, boxes, priorities, session, entries, refused, 'nacked', reason, function(box, priority, _, row, fields)
      local was_stored = came_before(row[1], backlog_end)
      local became = fail(address, box, dead, dead_max, row, priority, fields, session, reason, reason_json, retry, delay_ms,
        was_stored)
      buried = buried or became == 'dead'
      ready = ready or became == 'ready'
    end)
    if buried then settle_waiting(address, boxes) end
    drop_puller(boxes, session)
    if ready then wake(address, redis.call('HGET', presence, address), 'mail', '') end
  end
  return refused
end)
