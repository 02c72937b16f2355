#!lua flags=allow-oom
-- renew: an instance says that it is alive.
--
-- KEYS  1 instances  HASH  instance -> until when it is believed to be alive
-- ARGV  1 instance
--       2 until_ms
-- Returns "renewed"

local instances = KEYS[1]
local instance, until_ms = unpack(ARGV)
redis.call('HSET', instances, instance, until_ms)
return 'renewed'
