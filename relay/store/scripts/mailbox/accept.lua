#!lua
-- accept: put messages into their recipients' mailboxes, each at most once, and wake whoever serves them.
-- Not on a full server: it only adds.
-- Uses shard, shadows, numbering
--
-- KEYS  SHARD
--       27+ per mailbox: one STREAM per lane, in the order of its `priorities`
-- ARGV  CALL
--         seqs_ms       how long a bucket of sequence numbers is kept
--         window_ms     the dedup window
--         ttl_ms        the relay's TTL, which is also the time of a bucket
--         rations       {threads, mailboxes, of_tenant}: how many threads one sender may begin here in a bucket, and to how
--                       many addresses that nobody has used yet it, and all of its tenant, may be the first to send
--         mailboxes     each {address, priorities, must_exist, max_messages, max_bytes, messages}, where a message is
--                       seven values in a row: lane index, message key, thread key, rest of the head, opts without seq,
--                       body, payload bytes
-- Returns {wakes sent, wakes that nobody heard, its entry in the event log or "", results} with results per message
--         {"lanes"} if the mailbox uses lanes that were not named, else {"stored", entry, seq} | {"duplicate", entry, how it ended or "", at which attempt} | {"blocked", entry, seq} | {"unknown"}
--         | {"full", depth, bytes, ms per ack or -1, online 0|1, max_messages, max_bytes} | {"rationed", which of rations, ms until the next bucket}, flat over the mailboxes

local seqs_ms, window_ms, ttl_ms, rations, mailboxes = open()
local THREADS, MAILBOXES, OF_TENANT = 1, 2, 3
local TAB = string.byte('\t')
local IS_TIMED = '^%d+\t%d+\t%d+\t%d+\t%d+\t%d\t%d\t1'

local keys, thread_keys, addresses = {}, {}, {}
for m, mailbox in ipairs(mailboxes) do
  addresses[m] = mailbox[1]
  local messages = mailbox[6]
  for n = 1, #messages, 7 do
    keys[#keys + 1] = messages[n + 1]
    thread_keys[#thread_keys + 1] = messages[n + 2]
  end
end

local here = redis.call('HMGET', ids, unpack(keys))
local gone = redis.call('HMGET', ended, unpack(keys))
local gone_before = redis.call('HMGET', ended_before, unpack(keys))
local last = redis.call('HMGET', seqs, unpack(thread_keys))
local last_before = redis.call('HMGET', seqs_before, unpack(thread_keys))
local sessions = redis.call('HMGET', presence, unpack(addresses))
local blocked = redis.call('HMGET', blocks, unpack(addresses))
local held_bytes = redis.call('HMGET', bytes, unpack(addresses))
local used = redis.call('HMGET', lanes, unpack(addresses))
local own_caps = redis.call('HMGET', caps, unpack(addresses))

local counted = {}  -- thread key -> last sequence number given in this call
local stored = {}   -- message key -> entry stored in this call
local new_ids, new_seqs, new_threads, results = {}, {}, {}, {}

local function is_blocked(m, key)
  if not blocked[m] then return false end
  local tenant, _, from = string.match(key, KEY_PARTS)
  return lists(blocked[m], tenant .. '/' .. from)
end

local function ended_lately(i)
  local record = gone[i] or gone_before[i]
  if not record then return nil end
  local how, at_ms, entry, attempt = parse_end(record)
  if at_ms + window_ms <= book.now_ms then return nil end
  return entry, how, attempt
end

-- use_up: count one more of a ration in this bucket. Says whether there was one left.
local function use_up(ration, whose)
  local field = 'ration\t' .. ration .. '\t' .. whose
  if redis.call('HINCRBY', seqs, field, 1) <= rations[ration] then return true end
  redis.call('HINCRBY', seqs, field, -1)
  return false
end

-- rationed: nil, or which ration the sender has used up. A sender that is refused does not use up what is the tenant's.
local function rationed(key, is_first_mail, is_new_thread)
  if not is_first_mail and not is_new_thread then return nil end
  local tenant, _, from = string.match(key, KEY_PARTS)
  local sender = tenant .. '/' .. from
  if is_new_thread and not use_up(THREADS, sender) then return THREADS end
  if not is_first_mail then return nil end
  if not use_up(MAILBOXES, sender) then return MAILBOXES end
  return not use_up(OF_TENANT, tenant) and OF_TENANT or nil
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
  local depth_before, size_before, woken = depth, size, false
  local is_unused = depth == 0 and not sessions[m] and must_exist ~= 1 and redis.call('HEXISTS', agents, address) == 0

  for n = 1, #messages, 7 do
    i = i + 1
    local lane, key, thread, rest, opts, body, payload_bytes = unpack(messages, n, n + 6)
    local head = key .. '\t' .. rest
    local entry, how, attempt = here[i] or stored[key], '', 0
    if not entry then entry, how, attempt = ended_lately(i) end
    local is_new_thread = string.byte(thread, -1) ~= TAB and not (counted[thread] or last[i] or last_before[i])
    local ration
    -- A blocked sender must not be able to tell: to it, shadows are mail.
    local hidden, shadow_count, shadow_bytes = not entry and is_blocked(m, key), 0, 0
    if hidden then shadow_count, shadow_bytes = shadow_size(address) end
    if short_of_lanes then
      results[i] = {'lanes'}
    elseif entry then
      entry = unmarked(entry) or entry
      arrival('duplicate', entry, '', how, head)
      results[i] = {'duplicate', entry, how, attempt}
    elseif unknown then
      arrival('refused', '', '', 'unknown_agent', head)
      results[i] = {'unknown'}
    elseif depth + shadow_count >= max_messages or size + shadow_bytes + payload_bytes > max_bytes then
      local pace = redis.call('HGET', drain, address)
      local is_full = depth >= max_messages or size + payload_bytes > max_bytes -- not by shadows alone
      arrival('refused', '', '', is_full and 'queue_full' or 'blocked, queue_full', head)
      results[i] = {'full', depth + shadow_count, size + shadow_bytes, pace and tonumber(string.match(pace, '\t(%d+)')) or -1,
        is_online(sessions[m]) and 1 or 0, max_messages, max_bytes}
    else
      ration = rationed(key, is_unused and depth + shadow_count == 0, is_new_thread)
    end
    if ration then
      arrival('refused', '', '', 'rate_limited', head)
      results[i] = {'rationed', ration, ttl_ms - book.now_ms % ttl_ms}
    elseif hidden and not results[i] then
      local seq = (counted[thread] or tonumber(last[i] or last_before[i] or before_first(sums))) + 1
      local number = text(seq)
      local is_first = shadow_count == 0 and redis.call('EXISTS', boxes[lane]) == 0
      entry = cast(address, tonumber(string.sub(priorities, lane, lane)), key, thread, number .. '\t' .. opts, payload_bytes,
        is_first)
      counted[thread] = seq
      stored[key] = entry .. '~'
      new_ids[#new_ids + 1] = key
      new_ids[#new_ids + 1] = entry .. '~'
      arrival('refused', entry, number, 'blocked', head)
      results[i] = {'blocked', entry, seq}
    elseif not results[i] then
      local seq = (counted[thread] or tonumber(last[i] or last_before[i] or before_first(sums))) + 1
      local priority = tonumber(string.sub(priorities, lane, lane))
      local number = text(seq)
      local id = add_to(boxes[lane], 'head', head, 'opts', number .. '\t' .. opts, 'body', body)
      entry = handle(id, priority)
      counted[thread] = seq
      stored[key] = entry
      new_ids[#new_ids + 1] = key
      new_ids[#new_ids + 1] = entry
      if string.byte(thread, -1) ~= TAB then
        new_threads[#new_threads + 1] = 0
        new_threads[#new_threads + 1] = in_thread(thread, seq)
      end
      depth, size = depth + 1, size + payload_bytes
      book.bytes[address] = (book.bytes[address] or 0) + payload_bytes
      local wait = string.find(opts, IS_TIMED) and put_in_due(address, entry, opts, ttl_ms)
      if priority > 0 then
        local digits = redis.call('HGET', lanes, address) or ''
        if not string.find(digits, priority, 1, true) then redis.call('HSET', lanes, address, digits .. priority) end
      end
      arrival('accepted', entry, number, '', head)
      results[i] = {'stored', entry, seq}
      woken = woken or not wait
    end
  end
  if depth > depth_before then
    end_push(address)
    tally_mail(tenant_of(address), depth - depth_before, size - size_before)
    if depth_before == 0 then
      redis.call('ZADD', waiting, 'NX', book.now_ms, address)
      -- Whoever has a session is registered; of pullers that is not known.
      if not sessions[m] or string.find(sessions[m], '\tpuller', 1, true) then enrol(address) end
    end
  end
  if woken then wake(address, sessions[m], 'mail', '') end
end

if #new_ids > 0 then
  for thread, seq in pairs(counted) do
    new_seqs[#new_seqs + 1] = thread
    new_seqs[#new_seqs + 1] = seq
  end
  redis.call('HSET', ids, unpack(new_ids))
  redis.call('HSET', seqs, unpack(new_seqs))
  if #new_threads > 0 then redis.call('ZADD', threads, unpack(new_threads)) end
  redis.call('PEXPIRE', seqs, seqs_ms, 'NX')
end
flush()
return {book.wakes_sent, book.wakes_unheard, book.logged, results}
