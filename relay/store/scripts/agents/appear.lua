#!lua
-- appear: an agent that has proved who it is becomes known, if it is not, and was seen now.
-- Not on a full server: it only adds.
-- Uses shard
--
-- KEYS  SHARD
-- ARGV  CALL
--         address
-- Returns "new" | "known"

local address = open()
redis.call('HSET', seen, address, book.now .. '\t' .. back_at(address))
if redis.call('HSETNX', agents, address, '{"registered_at_ms":' .. book.now .. '}') == 0 then return 'known' end
enrol(address)
return 'new'
