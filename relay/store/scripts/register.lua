-- register: make an agent known, or change what is known of it; null takes a field away.
-- Uses shard
--
-- KEYS  SHARD
-- ARGV  1 now_ms, instance, events_max, ended_ms, publish, wake_prefix,
--         address
--         changes       a JSON object
--         first         a JSON object: what a new registration begins with
-- Returns the whole registration, JSON

local address, changes, first = open()
local registration = cjson.decode(redis.call('HGET', agents, address) or first)
for field, value in pairs(cjson.decode(changes)) do
  if value == cjson.null then value = nil end
  registration[field] = value
end
local whole = cjson.encode(registration)
redis.call('HSET', agents, address, whole)
return whole
