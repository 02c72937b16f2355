#!lua flags=allow-oom
-- reap: give back what agents need that have been away for long: streams without entries, and in the end their registration.
-- Uses shard, mailboxes
--
-- KEYS  SHARD
--       27+ per mailbox: one STREAM per lane, in the order of its `priorities`, then its dead-letter box and its receipts
-- ARGV  CALL
--         receipts_before  receipts of before that id are too old
--         known_before_ms  whoever was neither seen nor registered nor expected since then is forgotten, but for whom an
--                          admin has registered
--         mailboxes        each {address, priorities}
-- Returns per mailbox "in_use" | "reaped" | "forgotten", the last when nothing of the agent is left

local receipts_before, known_before_ms, mailboxes = open()
local results = {}

local function is_empty(streams)
  for _, stream in ipairs(streams) do
    if redis.call('XLEN', stream) > 0 then return false end
  end
  return true
end

-- is_known: whether an agent is registered and to be kept so.
local function is_known(address)
  local registration = redis.call('HGET', agents, address)
  if not registration then return false end
  local is_readable, fields = pcall(cjson.decode, registration)
  if not is_readable or type(fields) ~= 'table' then return true end  -- whatever it is, an admin looks at it first
  local last_seen, next_active = string.match(redis.call('HGET', seen, address) or '', '^(%d+)\t(%d+)')
  last_seen, next_active = last_seen or '0', next_active or '0'
  -- Who says that it comes back in a hundred years does not stay for that.
  if tonumber(next_active) > 2 * book.now_ms - known_before_ms then next_active = 0 end
  local latest = math.max(tonumber(last_seen), tonumber(next_active), tonumber(fields.registered_at_ms) or 0)
  return fields.by_admin == true or latest >= known_before_ms
end

for m, mailbox, boxes, dead, receipts in each(mailboxes, SHARD_KEYS, 2) do
  local address = mailbox[1]
  redis.call('XTRIM', receipts, 'MINID', receipts_before)
  local word = 'in_use'
  if redis.call('HEXISTS', presence, address) == 0 and is_empty(boxes) then
    word = 'reaped'
    redis.call('DEL', unpack(boxes))
    redis.call('HDEL', lanes, address)
    redis.call('HDEL', drain, address)
    if is_empty({dead}) then redis.call('DEL', dead) end
    if is_empty({receipts}) then redis.call('DEL', receipts) end
    if is_empty({dead, receipts}) and not is_known(address) then
      word = 'forgotten'
      for _, hash in ipairs({agents, seen, blocks, caps}) do redis.call('HDEL', hash, address) end
    end
    strike(address)
  end
  results[m] = word
end
return results
