#!lua flags=allow-oom
-- tell: note which shards have gone back in time, and give the store an epoch that nobody knows.
--
-- KEYS  1 meta  HASH  schema, shards, epoch, `regresses` -> how often a shard was told of, and `regressed:<shard>` -> when
--                     and how far it went back (JSON)
-- ARGV  1 the epochs that the instance has known, 2 new_epoch, and then field, JSON …
-- Returns the epoch

local meta = KEYS[1]
local known_epochs, new_epoch = unpack(ARGV)

-- merge: several instances tell of the same, each of what it has lost.
local function merge(before, told)
  if not before or before.times ~= told.times then return told end
  for instance, count in pairs(told.lost_by) do before.lost_by[instance] = count end
  if told.newest_known > before.newest_known then before.newest_known = told.newest_known end
  if told.first_lost < before.first_lost then before.first_lost = told.first_lost end
  return before
end

for n = 3, #ARGV, 2 do
  local known, told = redis.call('HGET', meta, ARGV[n]), cjson.decode(ARGV[n + 1])
  local before = known and cjson.decode(known)
  redis.call('HSET', meta, ARGV[n], cjson.encode(merge(before, told)))
  -- Whoever has learned the epoch already looks again.
  if not before or before.times ~= told.times then redis.call('HINCRBY', meta, 'regresses', 1) end
end
-- The epoch goes back in time too, and may be an earlier one again. A new one is of another instance that told of this.
if string.find(known_epochs, redis.call('HGET', meta, 'epoch'), 1, true) then redis.call('HSET', meta, 'epoch', new_epoch) end
return redis.call('HGET', meta, 'epoch')
