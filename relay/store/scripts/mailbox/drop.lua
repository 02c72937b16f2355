#!lua flags=allow-oom
-- drop: remove dead letters for good.
-- Uses shard, records
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
-- dropped: the event of it. What is no dead letter has only its own id.
local function dropped(id, fields)
  local entry, attempts, reason = fields[8] or '', fields[10] or '', fields[14] or ''
  if not string.find(entry, '^%d+%-%d+p?%d?$') or not string.find(attempts, '^%d+$') or not is_utf8(reason) then
    entry, attempts, reason = id, '', UNREADABLE
  end
  event('dropped', entry, attempts, by, string.gsub(reason, '[\t\n]', ' '), '', key_of(address, fields))
end

for n, id in ipairs(entries) do
  local found = redis.call('XRANGE', dead, id, id)[1]
  results[n] = 'not_found'
  if found then
    redis.call('XDEL', dead, id)
    dropped(id, found[2])
    results[n] = 'dropped'
    some = some + 1
  end
end
tally(tenant_of(address), 'dead', -some)
flush()
return results
