#!lua flags=allow-oom
-- limit: give an agent caps and a rate of its own, or take them away; what is left out stays as it is.
-- Uses shard
--
-- KEYS  SHARD
--       27 limits  HASH  address -> messages per second, burst; only of agents with a rate of their own
-- ARGV  CALL
--         address
--         by            who wants it
--         own_caps      false to leave them, "" to take them away, else max_messages, max_bytes
--         own_rate      the same of the rate: per_s, burst
-- Returns "limited"

local limits = KEYS[SHARD_KEYS + 1]
local address, by, own_caps, own_rate = open()
local told = {}

local function change(hash, value, name, is_as_of_all)
  if value == false then return end
  if value == '' then
    redis.call('HDEL', hash, address)
  else
    redis.call('HSET', hash, address, value)
  end
  told[#told + 1] = value == '' and is_as_of_all or name .. ' ' .. string.gsub(value, '\t', ', ')
end

change(caps, own_caps, 'caps', 'caps are now those of all')
change(limits, own_rate, 'rate', 'rate is now that of all')
if #told > 0 then event('changed', '', '', by, table.concat(told, '; '), '', agent_key(address)) end
flush()
return 'limited'
