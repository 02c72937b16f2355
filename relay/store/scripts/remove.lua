-- remove: forget an agent and everything that waits for it. What is still in the mailbox is cancelled.
-- Uses shard
--
-- KEYS  SHARD
--       21+ one STREAM per lane, in the order of `priorities`, then its dead-letter box and its receipts, STREAM
-- ARGV  1 now_ms, instance, events_max, ended_ms, publish, wake_prefix,
--         address, priorities, force
-- Returns {outbox entry or "", its fields, "removed" | "not_empty" | "unknown" | "more"}, the last when it must be called again

local address, priorities, force = open()
local AT_ONCE = 500
local boxes = {unpack(KEYS, SHARD_KEYS + 1, SHARD_KEYS + #priorities)}
local function in_mailbox()
  local depth = 0
  for _, box in ipairs(boxes) do depth = depth + redis.call('XLEN', box) end
  return depth
end
local depth = in_mailbox() + redis.call('XLEN', KEYS[SHARD_KEYS + #priorities + 1])
local known = redis.call('HEXISTS', agents, address) == 1 or redis.call('HEXISTS', presence, address) == 1
if not known and depth == 0 then return {'', {}, 'unknown'} end
if depth > 0 and not force then return {'', {}, 'not_empty'} end

book.timed = true
for n, box in ipairs(boxes) do
  for _, found in ipairs(redis.call('XRANGE', box, '-', '+', 'COUNT', AT_ONCE)) do
    redis.call('XACK', box, GROUP, found[1])
    redis.call('XDEL', box, found[1])
    ending('cancelled', handle(found[1], tonumber(string.sub(priorities, n, n))), 1, found[2], '', 'agent deleted', '', '', false)
  end
end
local word = in_mailbox() > 0 and 'more' or 'removed'
if word == 'removed' then
  for line in string.gmatch(redis.call('HGET', presence, address) or '', '[^\n]+') do
    local session = string.match(line, '^[^\t]+')
    tell(session, 'replaced\t' .. session)
  end
  settle_waiting(address, boxes)
  redis.call('DEL', unpack(KEYS, SHARD_KEYS + 1))
  for _, hash in ipairs({agents, presence, seen, blocks, lanes, drain, caps}) do redis.call('HDEL', hash, address) end
end
local sent, fields = flush()
return {sent, fields, word}
