-- describe: what there is to say of agents and their mailboxes.
-- Uses shard
--
-- KEYS  SHARD
--       21+ per agent: one STREAM per lane, in the order of its `priorities`, then its dead-letter box, STREAM
-- ARGV  1 now_ms, instance, events_max, ended_ms, publish, wake_prefix,
--         agents        each {address, priorities}
-- Returns per agent {registration or "", depth, bytes, accepted_at of the oldest or -1, online 0|1, seen or "", caps or "", dead}

local found = open()
local results = {}
local next_key = SHARD_KEYS
for m, agent in ipairs(found) do
  local address, priorities = unpack(agent)
  local depth, oldest = 0, -1
  for n = 1, #priorities do
    local box = KEYS[next_key + n]
    depth = depth + redis.call('XLEN', box)
    local first = redis.call('XRANGE', box, '-', '+', 'COUNT', 1)[1]
    local at_ms = first and tonumber((string.match(first[2][4], '^%d+\t(%d+)')))
    if at_ms and (oldest < 0 or at_ms < oldest) then oldest = at_ms end
  end
  local dead = redis.call('XLEN', KEYS[next_key + #priorities + 1])
  next_key = next_key + #priorities + 1
  results[m] = {redis.call('HGET', agents, address) or '', depth, tonumber(redis.call('HGET', bytes, address) or 0), oldest,
    is_online(redis.call('HGET', presence, address)) and 1 or 0, redis.call('HGET', seen, address) or '',
    redis.call('HGET', caps, address) or '', dead}
end
return results
