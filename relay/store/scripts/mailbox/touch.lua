#!lua flags=allow-oom
-- touch: a holder is still working: a timed hold is moved on. A hold without a time needs nothing and is left as it is.
-- Uses shard, records, mailboxes, exchanges, fence, holding
--
-- KEYS  SHARD
--       27 calls  HASH  see fence
--       28+ per mailbox: one STREAM per lane, in the order of its `priorities`
-- ARGV  CALL
--         exchange, part
--         mailboxes     each {address, priorities, session, extend_ms, entries}, where
--                       entries is {lane index, stream id, attempt or 0 for any, lane index, …}
-- Returns {outbox entry or "", its fields, refused, its entry in the event log or ""} with refused
--         {mailbox index, handle, "lock_lost" | "not_found", …}

local exchange, part, mailboxes = open()

return once(exchange, part, function()
  local refused = {}
  for m, mailbox, boxes in each(mailboxes, FENCED_KEYS, 0) do
    local address, priorities, session, extend_ms, entries = unpack(mailbox)
    settle_each(m, address, boxes, priorities, session, entries, refused, 'touched', '', function(_, _, entry)
      redis.call('ZADD', due, 'XX', book.now_ms + extend_ms, 'hold\t' .. address .. '\t' .. entry)
    end)
  end
  return refused
end)
