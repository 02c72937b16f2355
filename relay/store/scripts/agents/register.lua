#!lua
-- register: make an agent known, or change what is known of it; null takes a field away.
-- Sessions are told of another key: those of the old one are to end.
-- Not on a full server: it only adds.
-- Uses shard
--
-- KEYS  SHARD
-- ARGV  CALL
--         address
--         changes       a JSON object
--         first         a JSON object: what a new registration begins with
-- Returns the whole registration, JSON

local address, changes, first = open()
local registration = cjson.decode(redis.call('HGET', agents, address) or first)
local key_before = registration.key
for field, value in pairs(cjson.decode(changes)) do
  if value == cjson.null then value = nil end
  registration[field] = value
end
local whole = cjson.encode(registration)
redis.call('HSET', agents, address, whole)
enrol(address)
if registration.key ~= key_before then
  wake(address, redis.call('HGET', presence, address), 'key', '')
  flush()
end
return whole
