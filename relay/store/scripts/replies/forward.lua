#!lua flags=allow-oom
-- forward: bring receipts from another shard's outbox to their senders. Idempotent.
-- Uses shard
--
-- KEYS  SHARD
--       27 forwarded         SET  origins that have arrived; the current bucket
--       28 forwarded_before  SET  the same, the bucket before
--       29+ per sender: receipts waiting for it, STREAM
-- ARGV  CALL
--         forwarded_ms  how long a bucket of origins is kept
--         receipts_max  how many entries wait for one sender at most; for more a tenth is dropped, the oldest, and how
--                       many receipts that were stands in an entry of its own: count 0, receipts "", dropped
--         batches       each {origin, {sender, count, receipts, sender, …}}: an origin is the outbox entry they come from
-- Returns per batch "forwarded" | "duplicate"

local forwarded_ms, receipts_max, batches = open()
local forwarded, forwarded_before = KEYS[SHARD_KEYS + 1], KEYS[SHARD_KEYS + 2]
local next_key = SHARD_KEYS + 2
local results = {}

local function keep(waiting_for_sender, count, receipts, origin)
  redis.call('XADD', waiting_for_sender, '*', 'count', count, 'receipts', receipts, 'origin', origin)
  local length = redis.call('XLEN', waiting_for_sender)
  if length <= receipts_max then return end
  local oldest, dropped = redis.call('XRANGE', waiting_for_sender, '-', '+', 'COUNT', math.ceil(receipts_max / 10) + 1), 0
  for _, entry in ipairs(oldest) do
    local fields = entry[2]
    dropped = dropped + tonumber(fields[2]) + (fields[5] == 'dropped' and tonumber(fields[6]) or 0)
  end
  redis.call('XTRIM', waiting_for_sender, 'MAXLEN', length - #oldest)
  redis.call('XADD', waiting_for_sender, '*', 'count', 0, 'receipts', '', 'dropped', dropped)
end

for b, batch in ipairs(batches) do
  local origin, senders = unpack(batch)
  local known = redis.call('SISMEMBER', forwarded, origin) == 1 or redis.call('SISMEMBER', forwarded_before, origin) == 1
  for n = 1, #senders, 3 do
    local sender, count, receipts = senders[n], senders[n + 1], senders[n + 2]
    next_key = next_key + 1
    if not known then
      local sessions = redis.call('HGET', presence, sender)
      keep(KEYS[next_key], count, receipts, origin)
      -- The reaper looks at whoever was seen; a sender that only uses HTTP would not be.
      if not sessions then redis.call('HSETNX', seen, sender, '0\t0') end
      wake(sender, sessions, 'receipts', '')
    end
  end
  if not known then
    redis.call('SADD', forwarded, origin)
    redis.call('PEXPIRE', forwarded, forwarded_ms, 'NX')
  end
  results[b] = known and 'duplicate' or 'forwarded'
end

flush()
return results
