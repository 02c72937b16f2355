#!lua flags=allow-oom
-- remove: forget an agent and everything that waits for it. What is still in the mailbox is cancelled.
-- Uses shard, records, shadows, walking
--
-- KEYS  SHARD
--       27+ one STREAM per lane, in the order of `priorities`, then its dead-letter box and its receipts, STREAM
-- ARGV  CALL
--         address, priorities, force
--         by            who wants it
-- Returns {outbox entry or "", its fields, "removed" | "not_empty" | "unknown" | "more"}, the last when it must be called again

local address, priorities, force, by = open()
local AT_ONCE = 500
local boxes = {unpack(KEYS, SHARD_KEYS + 1, SHARD_KEYS + #priorities)}
local function in_mailbox()
  local depth = 0
  for _, box in ipairs(boxes) do depth = depth + redis.call('XLEN', box) end
  return depth
end
local dead = KEYS[SHARD_KEYS + #priorities + 1]
local depth = in_mailbox() + redis.call('XLEN', dead)
local known = redis.call('HEXISTS', agents, address) == 1 or redis.call('HEXISTS', presence, address) == 1
if not known and depth == 0 then return {'', {}, 'unknown'} end
if depth > 0 and not force then return {'', {}, 'not_empty'} end

book.timed = true
walk(boxes, 1, '', function(box, lane, id, fields)
  if #book.ids == AT_ONCE then return false end
  redis.call('XACK', box, GROUP, id)
  redis.call('XDEL', box, id)
  ending('cancelled', address, handle(id, tonumber(string.sub(priorities, lane, lane))), 1, fields, by, 'agent deleted', '', '', false)
  return true
end)
for _, shadow in ipairs(shadows_of(address, AT_ONCE)) do dispel('cancelled', shadow) end
local word = (in_mailbox() > 0 or shadow_size(address) > 0) and 'more' or 'removed'
if word == 'removed' then
  local sessions = redis.call('HGET', presence, address)
  if sessions then tally(tenant_of(address), 'online', -1) end
  tally(tenant_of(address), 'dead', -redis.call('XLEN', dead))
  for line in string.gmatch(sessions or '', '[^\n]+') do
    local session = string.match(line, '^[^\t]+')
    tell(session, 'removed\t' .. session)
  end
  redis.call('DEL', unpack(KEYS, SHARD_KEYS + 1))
  for _, hash in ipairs({agents, presence, seen, blocks, lanes, drain, caps, pushes}) do redis.call('HDEL', hash, address) end
  settle_waiting(address, boxes)
end
local sent, fields = flush()
return {sent, fields, word}
