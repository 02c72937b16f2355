-- forward: bring receipts from another shard's outbox to their senders. Doing it twice does it once.
-- Uses shard
--
-- KEYS  SHARD
--       21 forwarded         SET  origins that have arrived; the current bucket
--       22 forwarded_before  SET  the same, the bucket before
--       23+ per sender: receipts waiting for it, STREAM
-- ARGV  1 now_ms, instance, events_max, ended_ms, publish, wake_prefix,
--         forwarded_ms  how long a bucket of origins is kept
--         receipts_max  about how many entries wait for one sender at most
--         batches       each {origin, {sender, count, receipts, sender, …}}: an origin is the outbox entry they come from
-- Returns per batch "forwarded" | "duplicate"

local forwarded_ms, receipts_max, batches = open()
local forwarded, forwarded_before = KEYS[SHARD_KEYS + 1], KEYS[SHARD_KEYS + 2]
local next_key = SHARD_KEYS + 2
local results = {}

for b, batch in ipairs(batches) do
  local origin, senders = unpack(batch)
  local known = redis.call('SISMEMBER', forwarded, origin) == 1 or redis.call('SISMEMBER', forwarded_before, origin) == 1
  for n = 1, #senders, 3 do
    local sender, count, receipts = senders[n], senders[n + 1], senders[n + 2]
    next_key = next_key + 1
    if not known then
      redis.call('XADD', KEYS[next_key], 'MAXLEN', '~', receipts_max, '*', 'count', count, 'receipts', receipts)
      wake(sender, redis.call('HGET', presence, sender), 'receipts', '')
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
