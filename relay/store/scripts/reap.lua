-- reap: remove the streams of mailboxes that are empty and that nobody serves.
-- Uses shard
--
-- KEYS  SHARD
--       21+ per mailbox: one STREAM per lane, in the order of its `priorities`
-- ARGV  1 now_ms, instance, events_max, ended_ms, publish, wake_prefix,
--         mailboxes     each {address, priorities}
-- Returns per mailbox "reaped" | "in_use"

local mailboxes = open()
local results = {}
local next_key = SHARD_KEYS
for m, mailbox in ipairs(mailboxes) do
  local address, priorities = unpack(mailbox)
  local boxes = {unpack(KEYS, next_key + 1, next_key + #priorities)}
  next_key = next_key + #priorities
  local in_use = redis.call('HEXISTS', presence, address) == 1
  for _, box in ipairs(boxes) do in_use = in_use or redis.call('XLEN', box) > 0 end
  if not in_use then
    redis.call('DEL', unpack(boxes))
    redis.call('HDEL', lanes, address)
    redis.call('HDEL', drain, address)
  end
  results[m] = in_use and 'in_use' or 'reaped'
end
return results
