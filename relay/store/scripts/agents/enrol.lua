#!lua flags=allow-oom
-- enrol: put the roster right for some agents: on it who is registered or has mail, off it who is not.
-- Uses shard
--
-- KEYS  SHARD
-- ARGV  CALL
--         addresses
-- Returns "enrolled"

local addresses = open()
for _, address in ipairs(addresses) do
  enrol(address)
  if not redis.call('ZSCORE', waiting, address) then strike(address) end
end
return 'enrolled'
