-- touch: a holder is still working: a timed hold is moved on. A hold without a time needs nothing and is left as it is.
-- Uses shard, holding
--
-- KEYS  SHARD
--       21+ per mailbox: one STREAM per lane, in the order of its `priorities`
-- ARGV  1 now_ms, instance, events_max, ended_ms, publish, wake_prefix,
--         mailboxes     each {address, priorities, session, extend_ms, entries}, where
--                       entries is {lane index, stream id, attempt or 0 for any, lane index, …}
-- Returns {outbox entry or "", its fields, refused} with refused {mailbox index, handle, "lock_lost" | "not_found", …}

local mailboxes = open()
local refused = {}

local next_key = SHARD_KEYS
for m, mailbox in ipairs(mailboxes) do
  local address, priorities, session, extend_ms, entries = unpack(mailbox)
  local boxes = {unpack(KEYS, next_key + 1, next_key + #priorities)}
  next_key = next_key + #priorities
  settle_each(m, boxes, priorities, session, entries, refused, 'touched', '', function(_, _, entry)
    redis.call('ZADD', due, 'XX', book.now_ms + extend_ms, 'hold\t' .. address .. '\t' .. entry)
  end)
end

local sent, fields = flush()
return {sent, fields, refused}
