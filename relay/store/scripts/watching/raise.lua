#!lua flags=allow-oom
-- raise: keep what looks wrong, and forget what is old, also on a full server: there is a most that is kept.
--
-- KEYS  1 anomalies  HASH  id -> anomaly (JSON)
-- ARGV  1 keep_ms, found: {id, anomaly, …}, old: ids
-- Returns "raised"

local anomalies = KEYS[1]
local keep_ms, found, old = unpack(cmsgpack.unpack(ARGV[1]))
for n = 1, #found, 2 do redis.call('HSET', anomalies, found[n], found[n + 1]) end
for _, id in ipairs(old) do redis.call('HDEL', anomalies, id) end
redis.call('PEXPIRE', anomalies, keep_ms)
return 'raised'
