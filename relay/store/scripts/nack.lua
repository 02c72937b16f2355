-- nack: a holder failed. The attempt is counted; the message comes again later, or goes to the dead-letter box.
-- Uses shard, failing
--
-- KEYS  SHARD
--       21+ per mailbox: one STREAM per lane, in the order of its `priorities`, then its dead-letter box, STREAM
-- ARGV  1 now_ms, instance, events_max, ended_ms, publish, wake_prefix,
--         dead_max      how many a dead-letter box holds
--         mailboxes     each {address, priorities, session, retry, delay_ms or -1, reason, reason as JSON, entries}, where
--                       entries is {lane index, stream id, attempt or 0 for any, lane index, …}
-- Returns {outbox entry or "", its fields, refused} with refused {mailbox index, handle, "lock_lost" | "not_found", …}

local dead_max, mailboxes = open()
book.timed = true
local refused = {}

local next_key = SHARD_KEYS
for m, mailbox in ipairs(mailboxes) do
  local address, priorities, session, retry, delay_ms, reason, reason_json, entries = unpack(mailbox)
  local boxes, buried, ready = {}, false, false
  for n = 1, #priorities do boxes[n] = KEYS[next_key + n] end
  local dead = KEYS[next_key + #priorities + 1]
  next_key = next_key + #priorities + 1

  for n = 1, #entries, 3 do
    local lane, id, attempt = entries[n], entries[n + 1], entries[n + 2]
    local box, priority = boxes[lane], tonumber(string.sub(priorities, lane, lane))
    local row, fields = held(box, id, session, attempt)
    if row then
      local seq, accepted_at = string.match(fields[4], OPTS)
      event('nacked', handle(id, priority), seq, row[4], session, reason, accepted_at, text(book.now_ms - row[3]), fields[2])
      local became = fail(address, box, dead, dead_max, row, priority, fields, session, reason, reason_json, retry, delay_ms)
      buried = buried or became == 'dead'
      ready = ready or became == 'ready'
    else
      refused[#refused + 1] = m
      refused[#refused + 1] = handle(id, priority)
      refused[#refused + 1] = fields
    end
  end
  if buried then settle_waiting(address, boxes) end
  drop_puller(boxes, session)
  if ready then wake(address, redis.call('HGET', presence, address), 'mail', '') end
end

local sent, fields = flush()
return {sent, fields, refused}
