-- where: where a message is, and how it ended if it did.
-- Uses shard
--
-- KEYS  SHARD
--       21+ one STREAM per lane, in the order of `priorities`, which are "9876543210"
-- ARGV  1 now_ms, instance, events_max, ended_ms, publish, wake_prefix,
--         message key
-- Returns {"queued" | "held" | "delayed", entry, attempt, accepted_at}
--         | {"acked" | "dead" | "expired" | "cancelled", entry, attempt, at_ms} | {"unknown"}

local key = open()
local entry = redis.call('HGET', ids, key)
if not entry then
  local record = redis.call('HGET', ended, key) or redis.call('HGET', ended_before, key)
  if not record then return {'unknown'} end
  local how, at_ms, its_entry, attempt = string.match(record, '^(%a+)\t(%d+)\t([^\t]+)\t(%d+)$')
  return {how, its_entry, tonumber(attempt), tonumber(at_ms)}
end

local id, priority = string.match(entry, '^(%d+%-%d+)p?(%d?)$')
local box = KEYS[SHARD_KEYS + 10 - (tonumber(priority) or 0)]
local row = pending(box, id, id, 1)[1]
local found = redis.call('XRANGE', box, id, id)[1]
if not found then return {'unknown'} end
local _, accepted_at, expires_at, not_before = string.match(found[2][4], OPTS)
if tonumber(expires_at) <= book.now_ms then return {'expired', entry, row and row[4] or 0, tonumber(expires_at)} end
local state = 'queued'
if row and row[2] ~= READY then state = row[2] == PARKED and 'delayed' or 'held' end
if not row and tonumber(not_before) > book.now_ms then state = 'delayed' end
return {state, entry, row and row[4] or 1, tonumber(accepted_at)}
