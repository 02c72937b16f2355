-- leave: a session ends, however it ended. What it held goes back, uncounted; a successor is not disturbed.
-- Uses shard
--
-- KEYS  SHARD
--       21+ per mailbox: one STREAM per lane, in the order of its `priorities`
-- ARGV  1 now_ms, instance, events_max, ended_ms, publish, wake_prefix,
--         mailboxes     each {address, priorities, session, reason, next_active_at_ms or 0}
-- Returns per mailbox "left" | "gone", the second when the session was not registered any more

local mailboxes = open()
local results = {}

local next_key = SHARD_KEYS
for m, mailbox in ipairs(mailboxes) do
  local address, priorities, session, reason, next_active = unpack(mailbox)
  local staying, was_here, was_puller, released = {}, false, false, 0
  for line in string.gmatch(redis.call('HGET', presence, address) or '', '[^\n]+') do
    local name, mode = string.match(line, '^([^\t]+)\t(.+)$')
    if name == session then was_here, was_puller = true, mode == 'puller' else staying[#staying + 1] = line end
  end
  for n = 1, #priorities do
    local priority = tonumber(string.sub(priorities, n, n))
    released = released + release_all(address, KEYS[next_key + n], priority, session, reason)
  end
  next_key = next_key + #priorities
  if was_here then
    if #staying == 0 then redis.call('HDEL', presence, address)
    else redis.call('HSET', presence, address, table.concat(staying, '\n')) end
    -- A puller that has waited was seen, but it neither came nor went as a session does.
    if was_puller then next_active = string.match(redis.call('HGET', seen, address) or '', '\t(%d+)$') or 0
    else event('left', '', '', '', session, reason, '', '', agent_head(address)) end
    redis.call('HSET', seen, address, book.now_ms .. '\t' .. next_active)
  end
  if released > 0 then wake(address, table.concat(staying, '\n'), 'mail', '') end
  results[m] = was_here and 'left' or 'gone'
end

flush()
return results
