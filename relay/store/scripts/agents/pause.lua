#!lua flags=allow-oom
-- pause: stop the delivery to an agent, or to all agents of a tenant in this shard, or let it go on.
-- Every instance that is alive is told; one that does not hear finds it out when it looks.
-- Uses shard
--
-- KEYS  SHARD
--       27 paused  HASH  address or tenant -> by whom, since when, why
-- ARGV  CALL
--         name          the address or the tenant
--         by, reason    who wants it, and why
--         on            whether delivery stops
--         tells         whether this shard logs the event: of a tenant one is enough
-- Returns "paused" | "resumed", or "nothing" if it was so already

local paused = KEYS[SHARD_KEYS + 1]
local name, by, reason, on, tells = open()
local before = redis.call('HGET', paused, name)
if on == (before ~= false) then return 'nothing' end
local word = on and 'paused' or 'resumed'
if on then
  redis.call('HSET', paused, name, by .. book.at .. reason)
else
  redis.call('HDEL', paused, name)
end
if tells then
  local key = string.find(name, '/', 1, true) and agent_key(name) or name
  event(word, '', '', by, reason, '', key)
end
for _, instance in ipairs(redis.call('HKEYS', instances)) do tell(instance .. '.', word .. '\t' .. name) end
flush()
return word
