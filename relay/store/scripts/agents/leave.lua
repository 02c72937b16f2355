#!lua flags=allow-oom
-- leave: a session ends, however it ended. What it held goes back, uncounted; a successor is not disturbed.
-- Uses shard, records, mailboxes, consumers, exchanges, fence
--
-- KEYS  SHARD
--       27 calls  HASH  see fence
--       28+ per mailbox: one STREAM per lane, in the order of its `priorities`
-- ARGV  CALL
--         exchange, part
--         mailboxes     each {address, priorities, session, reason, next_active_at_ms or 0}
-- Returns per mailbox "left" | "gone", the second when the session was not registered any more

local exchange, part, mailboxes = open()
local before = carried_out(exchange, part)
if before then return before end
local results = {}

for m, mailbox, boxes in each(mailboxes, FENCED_KEYS, 0) do
  local address, priorities, session, reason, next_active = unpack(mailbox)
  local staying, was_here, its_mode, released = {}, false, '', 0
  for line in string.gmatch(redis.call('HGET', presence, address) or '', '[^\n]+') do
    local name, mode = string.match(line, '^([^\t]+)\t([^\t]+)')
    if name == session then was_here, its_mode = true, mode else staying[#staying + 1] = line end
  end
  for n, box in ipairs(boxes) do
    released = released + release_all(address, box, tonumber(string.sub(priorities, n, n)), session, reason)
  end
  if was_here then
    if #staying == 0 then
      redis.call('HDEL', presence, address)
      tally(tenant_of(address), 'online', -1)
    else
      redis.call('HSET', presence, address, table.concat(staying, '\n'))
    end
    -- A puller that has waited was seen, but it neither came nor went as a session does.
    if its_mode ~= 'puller' then event('left', '', '', session, reason, '', agent_key(address)) end
    if its_mode == 'puller' or its_mode == 'sender' then next_active = back_at(address) end
    redis.call('HSET', seen, address, book.now .. '\t' .. text(next_active))
  end
  if released > 0 then wake(address, table.concat(staying, '\n'), 'mail', '') end
  results[m] = was_here and 'left' or 'gone'
end

flush()
remember(part, results)
return results
