#!lua flags=allow-oom
-- watch: a puller waits for mail, and wants to be woken like a session.
-- Uses shard
--
-- KEYS  SHARD
-- ARGV  CALL
--         address, watcher, lease_ms
-- Returns "watching" | "busy", the second while an exclusive session serves the mailbox

local address, watcher, lease_ms = open()
local sessions = redis.call('HGET', presence, address)
if served_exclusively(sessions) then return 'busy' end
local line = watcher .. '\tpuller'
if not sessions then tally(tenant_of(address), 'online', 1) end
if not string.find('\n' .. (sessions or '') .. '\n', '\n' .. line .. '\n', 1, true) then
  redis.call('HSET', presence, address, sessions and sessions .. '\n' .. line or line)
end
redis.call('HSETNX', instances, string.match(watcher, '^[^.]+'), book.now_ms + lease_ms)
return 'watching'
