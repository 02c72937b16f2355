#!lua flags=allow-oom
-- cancel: a sender, or whoever may act for it, takes a message back that nobody holds.
-- Uses shard, records, shadows
--
-- KEYS  SHARD
--       27+ one STREAM per lane, in the order of `priorities`, which are "9876543210"
-- ARGV  CALL
--         address, message key
--         by            who wants it
-- Returns "cancelled" | "held" | "not_found"

local address, key, by = open()
local boxes = {unpack(KEYS, SHARD_KEYS + 1, SHARD_KEYS + 10)}
local entry = redis.call('HGET', ids, key)
if not entry then return 'not_found' end
if unmarked(entry) then
  local shadow = shadow_of(key, unmarked(entry))
  if not shadow then return 'not_found' end
  dispel('cancelled', shadow)
  flush()
  return 'cancelled'
end
local id, priority = string.match(entry, '^(%d+%-%d+)p?(%d?)$')
priority = tonumber(priority) or 0
local box = boxes[10 - priority]
local row = pending(box, id, id, 1)[1]
if row and row[2] ~= READY and row[2] ~= PARKED then return 'held' end
local found = redis.call('XRANGE', box, id, id)[1]
if not found then return 'not_found' end
book.timed = true
redis.call('XACK', box, GROUP, id)
redis.call('XDEL', box, id)
ending('cancelled', address, entry, row and row[4] or 0, found[2], by, '', '', '', false)
book.ids[#book.ids + 1] = key  -- also of a record that does not say so itself
settle_waiting(address, boxes)
flush()
return 'cancelled'
