#!lua flags=allow-oom
-- lease: whether this holder should do a duty now. It only saves work: two holders at once do no harm.
--
-- KEYS  1 lease  STRING  which worker process does the duty
-- ARGV  1 holder
--       2 lease_ms
-- Returns "leased" | "taken", the second while somebody else has it

local lease = KEYS[1]
local holder, lease_ms = unpack(ARGV)
local other = redis.call('GET', lease)
if other and other ~= holder then return 'taken' end
redis.call('SET', lease, holder, 'PX', lease_ms)
return 'leased'
