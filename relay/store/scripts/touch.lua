-- touch: a holder is still working: a timed hold is moved on. A hold without a time needs nothing and is left as it is.
-- Uses shard
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
  for n = 1, #entries, 3 do
    local lane, id, attempt = entries[n], entries[n + 1], entries[n + 2]
    local box, priority = KEYS[next_key + lane], tonumber(string.sub(priorities, lane, lane))
    local row, fields = held(box, id, session, attempt)
    local entry = handle(id, priority)
    if row then
      local seq, accepted_at = string.match(fields[4], OPTS)
      redis.call('ZADD', due, 'XX', book.now_ms + extend_ms, 'hold\t' .. address .. '\t' .. entry)
      event('touched', entry, seq, row[4], session, '', accepted_at, text(book.now_ms - row[3]), fields[2])
    else
      refused[#refused + 1] = m
      refused[#refused + 1] = entry
      refused[#refused + 1] = fields
    end
  end
  next_key = next_key + #priorities
end

local sent, fields = flush()
return {sent, fields, refused}
