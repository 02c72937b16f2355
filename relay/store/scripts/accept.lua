-- accept: put messages into their recipients' mailboxes, each at most once, and wake whoever serves them.
-- Uses shard
--
-- KEYS  SHARD
--       21+ per mailbox: one STREAM per lane, in the order of its `priorities`
-- ARGV  1 now_ms, instance, events_max, ended_ms, publish, wake_prefix,
--         seqs_ms       how long a bucket of sequence numbers is kept
--         window_ms     the dedup window
--         ttl_ms        the relay's TTL
--         mailboxes     each {address, priorities, must_exist, max_messages, max_bytes, messages}, where a message is
--                       seven values in a row: lane index, message key, thread key, rest of the head, opts without seq,
--                       body, payload bytes
-- Returns {wakes sent, wakes that nobody heard, results} with results per message
--         {"lanes"} if the mailbox uses lanes that were not named, else {"stored", entry, seq} | {"duplicate", entry or "", how it ended or ""} | {"blocked", "", seq} | {"unknown"}
--         | {"full", depth, bytes, ms per ack or -1, online 0|1, max_messages, max_bytes}, flat over the mailboxes

local seqs_ms, window_ms, ttl_ms, mailboxes = open()
local TIMED = string.byte('1')

local keys, threads, addresses = {}, {}, {}
for m, mailbox in ipairs(mailboxes) do
  addresses[m] = mailbox[1]
  local messages = mailbox[6]
  for n = 1, #messages, 7 do
    keys[#keys + 1] = messages[n + 1]
    threads[#threads + 1] = messages[n + 2]
  end
end

local here = redis.call('HMGET', ids, unpack(keys))
local gone = redis.call('HMGET', ended, unpack(keys))
local gone_before = redis.call('HMGET', ended_before, unpack(keys))
local last = redis.call('HMGET', seqs, unpack(threads))
local last_before = redis.call('HMGET', seqs_before, unpack(threads))
local sessions = redis.call('HMGET', presence, unpack(addresses))
local blocked = redis.call('HMGET', blocks, unpack(addresses))
local held_bytes = redis.call('HMGET', bytes, unpack(addresses))
local used = redis.call('HMGET', lanes, unpack(addresses))
local own_caps = redis.call('HMGET', caps, unpack(addresses))

local counted = {}  -- thread key -> last sequence number given in this call
local stored = {}   -- message key -> entry stored in this call
local new_ids, new_seqs, results = {}, {}, {}

local function is_blocked(m, key)
  if not blocked[m] then return false end
  local tenant, _, from = string.match(key, KEY_PARTS)
  return string.find('\n' .. blocked[m] .. '\n', '\n' .. tenant .. '/' .. from .. '\n', 1, true) ~= nil
end

local function ended_lately(i)
  local record = gone[i] or gone_before[i]
  if not record then return nil end
  local how, at_ms, entry = string.match(record, '^(%a+)\t(%d+)\t([^\t]+)')
  if tonumber(at_ms) + window_ms <= book.now_ms then return nil end
  return entry, how
end

-- Whatever is to happen to the message before the relay's TTL. Says whether it must wait for its delivery.
local function put_in_due(address, entry, opts, ttl_ms)
  local accepted_at, expires_at, not_before = string.match(opts, '^(%d+)\t(%d+)\t(%d+)')
  local place = '\t' .. address .. '\t' .. entry
  if tonumber(expires_at) - tonumber(accepted_at) < ttl_ms then redis.call('ZADD', due, expires_at, 'ttl' .. place) end
  if not_before ~= '0' then redis.call('ZADD', due, not_before, 'park' .. place) end
  return not_before ~= '0'
end

local i, next_key = 0, SHARD_KEYS
for m, mailbox in ipairs(mailboxes) do
  local address, priorities, must_exist, max_messages, max_bytes, messages = unpack(mailbox)
  local boxes, depth, size = {}, 0, tonumber(held_bytes[m] or 0)
  if own_caps[m] then
    local own_messages, own_bytes = string.match(own_caps[m], '^(%d+)\t(%d+)$')
    max_messages, max_bytes = tonumber(own_messages), tonumber(own_bytes)
  end
  for n = 1, #priorities do
    boxes[n] = KEYS[next_key + n]
    depth = depth + redis.call('XLEN', boxes[n])
  end
  next_key = next_key + #priorities
  local unknown = must_exist == 1 and redis.call('HEXISTS', agents, address) == 0
  local short_of_lanes = used[m] and priorities ~= ALL_LANES
  local was_empty, woken = depth == 0, false

  for n = 1, #messages, 7 do
    i = i + 1
    local lane, key, thread, rest, opts, body, payload_bytes = unpack(messages, n, n + 6)
    local head = key .. '\t' .. rest
    local entry, how = here[i] or stored[key], ''
    if not entry then entry, how = ended_lately(i) end
    if short_of_lanes then
      results[i] = {'lanes'}
    elseif entry then
      event('duplicate', entry, '', '', '', how, '', '', head)
      results[i] = {'duplicate', entry, how}
    elseif unknown then
      event('refused', '', '', '', '', 'unknown_agent', '', '', head)
      results[i] = {'unknown'}
    elseif is_blocked(m, key) then
      event('refused', '', '', '', '', 'blocked', '', '', head)
      -- The sender must not be able to tell: it is answered with the number that the message would have had.
      results[i] = {'blocked', '', (counted[thread] or tonumber(last[i] or last_before[i] or 0)) + 1}
    elseif depth >= max_messages or size + payload_bytes > max_bytes then
      local pace = redis.call('HGET', drain, address)
      event('refused', '', '', '', '', 'queue_full', '', '', head)
      results[i] = {'full', depth, size, pace and tonumber(string.match(pace, '\t(%d+)')) or -1, is_online(sessions[m]) and 1 or 0,
        max_messages, max_bytes}
    else
      local seq = (counted[thread] or tonumber(last[i] or last_before[i] or 0)) + 1
      local priority = tonumber(string.sub(priorities, lane, lane))
      local number = text(seq)
      local id = redis.call('XADD', boxes[lane], '*', 'head', head, 'opts', number .. '\t' .. opts, 'body', body)
      entry = handle(id, priority)
      counted[thread] = seq
      stored[key] = entry
      new_ids[#new_ids + 1] = key
      new_ids[#new_ids + 1] = entry
      depth, size = depth + 1, size + payload_bytes
      book.bytes[address] = (book.bytes[address] or 0) + payload_bytes
      local wait = string.byte(opts, -1) == TIMED and put_in_due(address, entry, opts, ttl_ms)
      if priority > 0 then
        local digits = redis.call('HGET', lanes, address) or ''
        if not string.find(digits, priority, 1, true) then redis.call('HSET', lanes, address, digits .. priority) end
      end
      event('accepted', entry, number, '0', '', '', book.now, '', head)
      results[i] = {'stored', entry, seq}
      woken = woken or not wait
    end
  end
  if was_empty and depth > 0 then redis.call('ZADD', waiting, 'NX', book.now_ms, address) end
  if woken then wake(address, sessions[m], 'mail', '') end
end

if #new_ids > 0 then
  for thread, seq in pairs(counted) do
    new_seqs[#new_seqs + 1] = thread
    new_seqs[#new_seqs + 1] = seq
  end
  redis.call('HSET', ids, unpack(new_ids))
  redis.call('HSET', seqs, unpack(new_seqs))
  redis.call('PEXPIRE', seqs, seqs_ms, 'NX')
end
flush()
return {book.wakes_sent, book.wakes_unheard, results}
