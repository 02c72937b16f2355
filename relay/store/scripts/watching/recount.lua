#!lua flags=allow-oom
-- recount: count from the ground what each tenant of a shard has.
-- It reads whole indexes, and is only for data that are older than the sums.
-- Uses shard, shadows
--
-- KEYS  SHARD
--       27+ per agent: its dead-letter box, STREAM
-- ARGV  CALL
--         addresses     every agent on the roster
-- Returns those on the roster that were not named: then nothing is counted, for their dead letters would be left out

local addresses = open()
local named, others = {}, {}
for _, address in ipairs(addresses) do named[address] = true end
for _, address in ipairs(redis.call('ZRANGE', roster, 0, -1)) do
  if not named[address] then others[#others + 1] = address end
end
if #others > 0 then return others end
local regressed = redis.call('HGET', sums, 'regressed')  -- cannot be counted, and numbers go on behind it
redis.call('DEL', sums)
local known = redis.call('HGETALL', ids)
for n = 1, #known, 2 do
  if not unmarked(known[n + 1]) then tally(string.match(known[n], '^[^\t]*'), 'messages', 1) end
end
for _, address in ipairs(redis.call('HKEYS', presence)) do tally(tenant_of(address), 'online', 1) end
local sizes = redis.call('HGETALL', bytes)
for n = 1, #sizes, 2 do
  local size = #sizes[n + 1] <= 15 and tonumber((string.match(sizes[n + 1], '^%d+$'))) or 0  -- what is none counts as none
  tally(tenant_of(sizes[n]), 'bytes', size)
end
for n, address in ipairs(addresses) do tally(tenant_of(address), 'dead', redis.call('XLEN', KEYS[SHARD_KEYS + n])) end
redis.call('HSET', sums, 'counted', book.now)
if regressed then redis.call('HSET', sums, 'regressed', regressed) end
return others
