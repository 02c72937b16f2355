#!lua
-- accept_plain: put ordinary messages into ordinary mailboxes, each at most once, and push or wake.
-- Ordinary is what has priority 0 and no delay, and goes to a mailbox that is served or has mail, uses no lanes, blocks
-- nobody, is not paused and has room. A mailbox where anything else is met is left alone: accept does it.
-- A session with credits owns the messages from here on, and gets them with the wake.
-- Not on a full server: it only adds.
-- Uses numbering
--
-- KEYS  1 events        STREAM  every transition, one entry per call, its field `e1` has a line per event
--       2 ids           HASH    message key -> entry handle, of what is in a mailbox
--       3 ended         HASH    message key -> how it ended; the current bucket of the dedup window
--       4 ended_before  HASH    the same, the bucket before
--       5 seqs          HASH    thread key -> last sequence number; the current bucket
--       6 seqs_before   HASH    the same, the bucket before
--       7 bytes         HASH    address -> payload bytes in its mailbox
--       8 waiting       ZSET    address by the time of its oldest entry
--       9 due           ZSET    kind, address, handle by the time when something must happen to an entry
--       10 presence     HASH    address -> its sessions
--       11 pushes       HASH    address -> session with credits, how many it has left, how many messages were pushed to it
--       12 threads      ZSET    thread key, sequence number of what waits and has a thread
--       13 sums         HASH    tenant, what -> how much
--       14 lanes        HASH    address -> the priorities above 0 that its mailbox uses
--       15 blocks       HASH    address -> the senders it has blocked
--       16 caps         HASH    address -> caps of its own
--       17 paused       HASH    address or tenant -> by whom, since when, why delivery is paused
--       18+ per mailbox: its lane 0, STREAM
-- ARGV  1 now_ms, 2 instance, 3 events_max, 4 publish, 5 wake_prefix, 6 seqs_ms, 7 max_messages, 8 max_bytes,
--       9 mailboxes, 10 runs, 11 messages, 12 timed: how many there are of each, and then
--         of all mailboxes  address …, runs …, payload bytes …, 1 if they are small enough to be pushed else 0 …
--         of all runs       thread key …, messages …; a run is of one mailbox and one thread
--         of all messages   message key …, rest of the head …, opts without seq …, body …
--         of the timed ones, whose TTL is shorter than the relay's: index of the message, expires_at …
-- Returns {wakes sent, wakes that nobody heard, its entry in the event log or "", first seq of each run, handle of each
--         message}, with an empty handle for the messages of a mailbox that was left alone

local events, ids, ended, ended_before, seqs, seqs_before, bytes, waiting, due, presence, pushes, threads, sums, lanes,
  blocks, caps, paused = unpack(KEYS, 1, 17)
local now, instance, events_max, publish, wake_prefix, seqs_ms, max_messages, max_bytes, mailboxes, runs, messages,
  timed = unpack(ARGV, 1, 12)
max_messages, max_bytes = tonumber(max_messages), tonumber(max_bytes)
local GROUP, OWN_KEYS, TAB = 'agent', 17, 9

-- The place before the first value of each list.
local ADDRESS = 12
local RUNS = ADDRESS + mailboxes
local SIZE = RUNS + mailboxes
local SMALL = SIZE + mailboxes
local THREAD = SMALL + mailboxes
local COUNT = THREAD + runs
local KEY = COUNT + runs
local REST = KEY + messages
local OPTS = REST + messages
local BODY = OPTS + messages
local TIMED = BODY + messages

local function get(hash, before, count)
  return redis.call('HMGET', hash, unpack(ARGV, before + 1, before + count))
end

local here, gone = get(ids, KEY, messages), get(ended, KEY, messages)
local gone_before = redis.call('EXISTS', ended_before) == 1 and get(ended_before, KEY, messages) or {}
local last, last_before = get(seqs, THREAD, runs), get(seqs_before, THREAD, runs)
local sessions, pushed, sizes = get(presence, ADDRESS, mailboxes), get(pushes, ADDRESS, mailboxes), get(bytes, ADDRESS, mailboxes)
local special = {}
if redis.call('EXISTS', lanes, blocks, caps) > 0 then  -- most shards have nothing of the kind
  for _, hash in ipairs({lanes, blocks, caps}) do
    for m, field in ipairs(get(hash, ADDRESS, mailboxes)) do special[m] = special[m] or field end
  end
end
if redis.call('EXISTS', paused) == 1 then
  for m = 1, mailboxes do
    local its_own, its_tenants = unpack(redis.call('HMGET', paused, ARGV[ADDRESS + m], (string.match(ARGV[ADDRESS + m], '^[^/]*'))))
    special[m] = special[m] or its_own or its_tenants
  end
end

local counted, begun = {}, {}  -- thread key -> last sequence number given in this call; the keys themselves
local first_seqs, handles, head_of, opts_of = {}, {}, {}, {}  -- by run; by message
local logged = ''
local noted = {now .. '\t' .. instance}
local new_ids, new_threads, new_sizes, new_waiting = {}, {}, {}, {}
local new_pushes, ended_pushes = {}, {}
local mail, rows = {}, {}  -- instance -> lines to tell it, messages to push to it
local sums_of = {}  -- tenant -> {messages, bytes}

-- is_ordinary: whether a mailbox has room for all, and knows none of the messages and all of their threads.
local function is_ordinary(m, depth, size, run, final_run, first, final)
  if special[m] or depth + final - first >= max_messages or size > max_bytes then return false end
  -- Nobody may have used this address yet, and of pullers it is not known if they are registered.
  if depth == 0 and (not sessions[m] or string.find(sessions[m], '\tpuller', 1, true)) then return false end
  for i = first, final do
    if here[i] or gone[i] or gone_before[i] then return false end
  end
  for r = run, final_run do
    local thread = ARGV[THREAD + r]
    if string.byte(thread, -1) ~= TAB and not (last[r] or last_before[r] or counted[thread]) then return false end
  end
  return true
end

local function store(box, r, first, final)
  local thread = ARGV[THREAD + r]
  local seq, has_name = counted[thread] or tonumber(last[r] or last_before[r] or before_first(sums)), string.byte(thread, -1) ~= TAB
  if not counted[thread] then begun[#begun + 1] = thread end
  first_seqs[r] = seq + 1
  for i = first, final do
    seq = seq + 1
    local number, key = string.format('%.0f', seq), ARGV[KEY + i]
    local head, opts = key .. '\t' .. ARGV[REST + i], number .. '\t' .. ARGV[OPTS + i]
    local id = add_to(box, 'head', head, 'opts', opts, 'body', ARGV[BODY + i])
    handles[i], head_of[i], opts_of[i] = id, head, opts
    new_ids[#new_ids + 1] = key
    new_ids[#new_ids + 1] = id
    noted[#noted + 1] = 'accepted\t' .. id .. '\t' .. number .. '\t\t\t\t\t' .. head
    if has_name then
      new_threads[#new_threads + 1] = 0
      new_threads[#new_threads + 1] = thread .. '\t' .. string.format('%016.0f', seq)
    end
  end
  counted[thread] = seq
end

-- claim: make messages that follow each other the session's own, and the last that the group has read. False if the
-- group was lost: what was held before is new again, and comes first.
local function claim(box, session, depth_before, first, final)
  local arguments = {unpack(handles, first, final)}
  for _, word in ipairs({'FORCE', 'JUSTID', 'LASTID', handles[final]}) do arguments[#arguments + 1] = word end
  local reply = redis.pcall('XCLAIM', box, GROUP, session, 0, unpack(arguments))
  if not (type(reply) == 'table' and reply.err) then return true end
  if not string.find(reply.err, 'NOGROUP', 1, true) then error(reply) end
  redis.call('XGROUP', 'CREATE', box, GROUP, '0')
  if depth_before > 0 then return false end
  redis.call('XCLAIM', box, GROUP, session, 0, unpack(arguments))
  return true
end

-- push: as many messages as there are credits for become the session's own. Says how many did not, and how many have
-- been pushed to it by now.
local function push(m, box, depth_before, first, final)
  local session, credits, total = string.match(pushed[m], '^([^\t]+)\t(%d+)\t(%d+)$')
  local past = math.min(final, first + credits - 1)
  if past < first or ARGV[SMALL + m] == '0' or not claim(box, session, depth_before, first, past) then
    ended_pushes[#ended_pushes + 1] = ARGV[ADDRESS + m]
    return final - first + 1, total
  end
  local count = past - first + 1
  local there = string.match(session, '^[^.]+')
  rows[there] = rows[there] or {}
  local list = rows[there]
  local n = #list
  list[n + 1], list[n + 2], list[n + 3], n = session, total + count, count, n + 3
  for i = first, past do
    list[n + 1], list[n + 2], list[n + 3], list[n + 4] = handles[i], head_of[i], opts_of[i], ARGV[BODY + i]
    n = n + 4
  end
  if past < final then
    ended_pushes[#ended_pushes + 1] = ARGV[ADDRESS + m]
  else
    new_pushes[#new_pushes + 1] = ARGV[ADDRESS + m]
    new_pushes[#new_pushes + 1] = string.format('%s\t%.0f\t%.0f', session, credits - count, total + count)
  end
  return final - past, string.format('%.0f', total + count)
end

-- wake: a session whose credits are used up is told how many messages it got before, for wakes may cross with takes.
local function wake(m, total)
  local line = 'mail\t' .. ARGV[ADDRESS + m] .. (total and '\t\t' .. total or '')
  for session in string.gmatch(sessions[m] or '', '([^\t\n]+)\t[^\n]*') do
    local there = string.match(session, '^[^.]+')
    mail[there] = mail[there] or {}
    local lines = mail[there]
    if lines[#lines] ~= line then lines[#lines + 1] = line end
  end
end

local function tally(address, count, size)
  local tenant = string.match(address, '^[^/]*')
  local so_far = sums_of[tenant] or {0, 0}
  sums_of[tenant] = {so_far[1] + count, so_far[2] + size}
end

local run, i = 0, 0
for m = 1, mailboxes do
  local box, address = KEYS[OWN_KEYS + m], ARGV[ADDRESS + m]
  local first_run, first = run + 1, i + 1
  run = run + ARGV[RUNS + m]
  for r = first_run, run do i = i + ARGV[COUNT + r] end
  local depth, size = redis.call('XLEN', box), tonumber(sizes[m] or 0) + ARGV[SIZE + m]
  if is_ordinary(m, depth, size, first_run, run, first, i) then
    local next_message = first
    for r = first_run, run do
      store(box, r, next_message, next_message + ARGV[COUNT + r] - 1)
      next_message = next_message + ARGV[COUNT + r]
    end
    new_sizes[#new_sizes + 1] = address
    new_sizes[#new_sizes + 1] = size
    if depth == 0 then
      new_waiting[#new_waiting + 1] = now
      new_waiting[#new_waiting + 1] = address
    end
    tally(address, i - first + 1, tonumber(ARGV[SIZE + m]))
    local left, total = 1, nil
    if pushed[m] then left, total = push(m, box, depth, first, i) end
    if left > 0 then wake(m, total) end
  else
    for n = first, i do handles[n] = '' end
    for r = first_run, run do first_seqs[r] = 0 end
  end
end

if #new_ids > 0 then
  local new_seqs = {}
  for n, thread in ipairs(begun) do new_seqs[2 * n - 1], new_seqs[2 * n] = thread, counted[thread] end
  redis.call('HSET', ids, unpack(new_ids))
  redis.call('HSET', seqs, unpack(new_seqs))
  redis.call('PEXPIRE', seqs, seqs_ms, 'NX')
  redis.call('HSET', bytes, unpack(new_sizes))
  if #new_waiting > 0 then redis.call('ZADD', waiting, 'NX', unpack(new_waiting)) end
  if #new_threads > 0 then redis.call('ZADD', threads, unpack(new_threads)) end
  if #new_pushes > 0 then redis.call('HSET', pushes, unpack(new_pushes)) end
  if #ended_pushes > 0 then redis.call('HDEL', pushes, unpack(ended_pushes)) end
  logged = redis.call('XADD', events, 'MAXLEN', '~', events_max, '*', 'e1', table.concat(noted, '\n'))
end
for n = TIMED + 1, TIMED + 2 * timed, 2 do
  local message = tonumber(ARGV[n])
  if handles[message] ~= '' then
    local tenant, to = string.match(ARGV[KEY + message], '^([^\t]*)\t([^\t]*)')
    redis.call('ZADD', due, ARGV[n + 1], 'ttl\t' .. tenant .. '/' .. to .. '\t' .. handles[message])
  end
end
for tenant, more in pairs(sums_of) do
  redis.call('HINCRBY', sums, tenant .. '\tmessages', more[1])
  redis.call('HINCRBY', sums, tenant .. '\tbytes', more[2])
end

local sent, unheard = 0, 0
for there in pairs(rows) do mail[there] = mail[there] or {} end
for there, lines in pairs(mail) do
  local told = table.concat(lines, '\n')
  if rows[there] then told = told .. '\0' .. cmsgpack.pack(rows[there]) end
  sent = sent + 1
  if redis.call(publish, wake_prefix .. there, told) == 0 then unheard = unheard + 1 end
end
return {sent, unheard, logged, first_seqs, handles}
