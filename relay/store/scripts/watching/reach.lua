#!lua flags=no-writes
-- reach: how far back a shard's event log goes, without a look at what is in it.
--
-- KEYS  1 events  STREAM  every transition
-- ARGV  none
-- Returns {first id or "", last id, how many entries were ever added, how many are there}

local events = KEYS[1]
local info = redis.pcall('XINFO', 'STREAM', events)
if info.err then return {'', '0-0', 0, 0} end
local named = {}
for n = 1, #info, 2 do named[info[n]] = info[n + 1] end
local first = named['first-entry']
local id = first and first[1] or ''
return {id, named['last-generated-id'], named['entries-added'], named.length}
