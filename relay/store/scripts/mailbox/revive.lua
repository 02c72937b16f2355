#!lua
-- revive: bring messages back from the dead-letter box into their mailbox, with no failed attempts.
-- Not on a full server: dead letters can wait, and what is revived is kept for its whole time again.
-- Uses shard, records
--
-- KEYS  SHARD
--       27+ one STREAM per lane, in the order of `priorities`, then the dead-letter box, STREAM
-- ARGV  CALL
--         address, priorities, max_messages, max_bytes, ttl_ms
--         by            who wants it
--         entries       ids in the dead-letter box
-- Returns per entry {"revived", new handle} | {"full"} | {"duplicate"} if it was sent again meanwhile | {"not_found"}
--         | {"unreadable"}

local address, priorities, max_messages, max_bytes, ttl_ms, by, entries = open()
local boxes = {unpack(KEYS, SHARD_KEYS + 1, SHARD_KEYS + #priorities)}
local dead = KEYS[SHARD_KEYS + #priorities + 1]
local own_messages, own_bytes = string.match(redis.call('HGET', caps, address) or '', '^(%d+)\t(%d+)$')
max_messages, max_bytes = tonumber(own_messages or max_messages), tonumber(own_bytes or max_bytes)
local depth, size = 0, tonumber(redis.call('HGET', bytes, address) or 0)
for _, box in ipairs(boxes) do depth = depth + redis.call('XLEN', box) end
local results, some, size_before = {}, 0, size

-- A revived message has its whole time again, and starts at once.
local function renewed(opts)
  local seq, _, _, _, max_attempts, ack_ms, receipt, request = string.match(opts, OPTS)
  local timed = ack_ms ~= '0' and 1 or 0
  return table.concat({seq, book.now, text(book.now_ms + ttl_ms), 0, max_attempts, ack_ms, receipt, request, timed}, '\t'), seq
end

for n, id in ipairs(entries) do
  local found = redis.call('XRANGE', dead, id, id)[1]
  if not found then
    results[n] = {'not_found'}
  else
    local fields = found[2]
    local key, tenant, to, from, _, thread, payload_bytes = string.match(fields[2], HEAD)
    if not is_readable(address, fields) then
      results[n] = {'unreadable'}
    elseif redis.call('HEXISTS', ids, key) == 1 then
      results[n] = {'duplicate'}
    elseif depth >= max_messages or size + tonumber(payload_bytes) > max_bytes then
      results[n] = {'full'}
    else
      local priority = tonumber(string.match(fields[2], '\t(%d)\t%d+$'))
      local opts, seq = renewed(fields[4])
      local new_id = redis.call('XADD', boxes[10 - priority], '*', 'head', fields[2], 'opts', opts, 'body', fields[6])
      local entry = handle(new_id, priority)
      redis.call('XDEL', dead, id)
      if thread ~= '' then
        redis.call('ZADD', threads, 0, in_thread(tenant .. '\t' .. to .. '\t' .. from .. '\t' .. thread, seq))
      end
      redis.call('HSET', ids, key, entry)
      redis.call('HDEL', ended, key)
      redis.call('HDEL', ended_before, key)
      if priority > 0 then
        local digits = redis.call('HGET', lanes, address) or ''
        if not string.find(digits, priority, 1, true) then redis.call('HSET', lanes, address, digits .. priority) end
      end
      book.bytes[address] = (book.bytes[address] or 0) + tonumber(payload_bytes)
      depth, size, some = depth + 1, size + tonumber(payload_bytes), some + 1
      note_event('revived\t' .. entry .. '\t' .. seq .. '\t\t' .. doer(by) .. '\t\t\t' .. fields[2])
      results[n] = {'revived', entry}
    end
  end
end
if some > 0 then
  redis.call('ZADD', waiting, 'NX', book.now_ms, address)
  enrol(address)
  tally_mail(tenant_of(address), some, size - size_before)
  tally(tenant_of(address), 'dead', -some)
  redis.call('HINCRBY', totals, 'revived', some)
  end_push(address)
  wake(address, redis.call('HGET', presence, address), 'mail', '')
end
flush()
return results
