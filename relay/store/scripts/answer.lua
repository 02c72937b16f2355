-- answer: keep a part or the end of a reply with its task, and tell who waits for it. Doing it twice does it once.
-- Uses shard
--
-- KEYS  SHARD
--       21 task  HASH  to, thread, turn:<task>, watch:<instance>; by recipient: part:<origin> <to>, end <to>, ended <to>, blocked <to>
-- ARGV  1 now_ms, instance, events_max, ended_ms, publish, wake_prefix,
--         requester, task id
--         field         "end <to>", "part:<origin> <to>", or "ended <to>"
--         payload       JSON; of "ended": how
--         lives_ms      how long the task is kept from now
-- Returns "answered"

local requester, task_id, field, payload, lives_ms = open()
local task = KEYS[SHARD_KEYS + 1]
redis.call('HSET', task, field, payload)
redis.call('PEXPIRE', task, lives_ms)
local fields = redis.call('HKEYS', task)
for _, name in ipairs(fields) do
  local instance = string.match(name, '^watch:(.+)$')
  if instance then tell(instance, 'task\t' .. requester .. '\t' .. task_id) end
end
flush()
return 'answered'
