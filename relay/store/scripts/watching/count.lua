#!lua flags=allow-oom
-- count: one more of something, also on a full server.
--
-- KEYS  1 counted  HASH  what -> how many
-- ARGV  1 what
-- Returns how many there are now

local counted = KEYS[1]
local what = unpack(ARGV)
return redis.call('HINCRBY', counted, what, 1)
