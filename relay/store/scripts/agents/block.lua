#!lua
-- block: change the list of senders that an agent does not want to hear.
-- Not on a full server: it only adds.
-- Uses shard
--
-- KEYS  SHARD
-- ARGV  CALL
--         address
--         most          how many can be blocked
--         add, remove   lists of addresses
-- Returns {"blocked" | "too_many", all that are blocked now, a line each}

local address, most, add, remove = open()
local is_blocked, list = {}, {}
for sender in string.gmatch(redis.call('HGET', blocks, address) or '', '[^\n]+') do is_blocked[sender] = true end
for _, sender in ipairs(add) do is_blocked[sender] = true end
for _, sender in ipairs(remove) do is_blocked[sender] = nil end
for sender in pairs(is_blocked) do list[#list + 1] = sender end
if #list > most then return {'too_many', ''} end
table.sort(list)
if #list == 0 then redis.call('HDEL', blocks, address)
else redis.call('HSET', blocks, address, table.concat(list, '\n')) end
return {'blocked', table.concat(list, '\n')}
