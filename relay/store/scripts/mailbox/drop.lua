#!lua flags=allow-oom
-- drop: remove dead letters for good.
-- Uses shard
--
-- KEYS  SHARD
--       27 dead  STREAM  the dead-letter box
-- ARGV  CALL
--         address
--         by            who wants it
--         entries       ids in the dead-letter box
-- Returns per entry "dropped" | "not_found"

local address, by, entries = open()
local dead = KEYS[SHARD_KEYS + 1]
local results, some = {}, 0
for n, id in ipairs(entries) do
  local found = redis.call('XRANGE', dead, id, id)[1]
  results[n] = 'not_found'
  if found then
    local fields = found[2]
    redis.call('XDEL', dead, id)
    event('dropped', fields[8], fields[10], by, fields[14], '', string.match(fields[2], KEY))
    results[n] = 'dropped'
    some = some + 1
  end
end
tally(tenant_of(address), 'dead', -some)
flush()
return results
