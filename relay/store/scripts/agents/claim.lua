#!lua
-- claim: an agent that nobody knows is registered with the first key that it shows.
-- Not on a full server: it only adds.
-- Uses shard
--
-- KEYS  SHARD
--       27+ one STREAM per lane, then its dead-letter box and its receipts, STREAM
-- ARGV  CALL
--         address
--         registration  a JSON object: what it is registered as
-- Returns the registration that counts, JSON; "" if there is none, and what waits for the address may be somebody else's

local address, registration = open()
local known = redis.call('HGET', agents, address)
if known then return known end
if redis.call('HEXISTS', presence, address) == 1 then return '' end
for n = SHARD_KEYS + 1, #KEYS do
  if redis.call('XLEN', KEYS[n]) > 0 then return '' end
end
redis.call('HSET', agents, address, registration)
enrol(address)
return registration
