-- shard: what every script shares: the names of a shard's keys, and the books that a transition keeps.
--
-- Scripts that say `-- Uses shard` have this text put before them. Their KEYS begin with the SHARD keys below,
-- in this order, and go on with what the script's own header says. ARGV[1] is one msgpack array: the CALL values below,
-- and then those of the script's own header.
--
-- SHARD  1 events        STREAM  every transition, one entry per call, its field `e1` has a line per event
--        2 ids           HASH    message key -> entry handle, of what is in a mailbox
--        3 ended         HASH    message key -> how it ended, see end_record; the current bucket of the dedup window
--        4 ended_before  HASH    the same, the bucket before
--        5 seqs          HASH    thread key -> last sequence number; the current bucket
--        6 seqs_before   HASH    the same, the bucket before
--        7 bytes         HASH    address -> payload bytes in its mailbox
--        8 lanes         HASH    address -> the priorities above 0 that its mailbox uses, as digits
--        9 waiting       ZSET    address by the time of its oldest entry
--       10 due           ZSET    kind, address, handle by the time when something must happen to an entry
--       11 presence      HASH    address -> its sessions, a line each: session, mode (exclusive, shared, puller or sender), and of sessions when they asked
--       12 instances     HASH    instance -> until when it is believed to be alive
--       13 blocks        HASH    address -> the senders it has blocked, a line each
--       14 agents        HASH    address -> registration (JSON)
--       15 outbox        STREAM  receipts and replies on their way to another shard
--       16 failures      HASH    address, handle -> what failed so far, a line each
--       17 drain         HASH    address -> last ack at_ms, smoothed ms per ack; only of mailboxes near their cap
--       18 seen          HASH    address -> last seen at_ms, next_active_at_ms or 0
--       19 caps          HASH    address -> max_messages, max_bytes; only of agents with caps of their own
--       20 totals        HASH    how -> how many messages have ended so, other than by ack
--       21 roster        ZSET    address of every agent that is registered or has mail; all scores 0, so in order of names
--       22 threads       ZSET    thread key, sequence number of what waits and has a thread; all scores 0
--       23 sums          HASH    tenant, what -> how much: messages, bytes, dead, online; `regressed` as regress.lua says
--       24 shadows       ZSET    what blocked senders believe to wait, as shadows.lua has it; all scores 0
--       25 shadowed      HASH    address -> how many shadows it has, and the bytes of their payloads
--       26 pushes        HASH    address -> session with credits, how many it has left, how many messages were pushed to it
--
-- CALL   1 now_ms       the time by the instance's clock
--        2 instance     who calls
--        3 events_max   about how many entries stay in the event log
--        4 ended_ms     for how long a bucket of `ended` is kept
--        5 publish      PUBLISH, or SPUBLISH on a Cluster
--        6 wake_prefix  the channel of an instance, without its name
--
-- A message key is `tenant \t to \t from \t id`; a head is that and `\t type \t thread \t priority \t bytes`.
-- opts are `seq \t accepted_at \t expires_at \t not_before \t max_attempts \t ack_timeout_ms \t receipt \t request \t timed \t via`,
-- where receipt is 0 (none), 1 (delivered and dead) or 2 (also expired), request is 0, 1 or 2
-- (its reply goes to the task only), timed is 1 when the message itself may stand in `due`, and via is the session that
-- sent it, or nothing.
-- An entry has the fields head, opts, body in this order; the body is the payload and behind it, as JSON, the fields of a
-- delivery that few messages have. Its handle is its stream id, and `p<priority>` above 0.
-- In the outbox, receipts are a field `sender \t count \t at_ms` and a line for each:
-- `id \t to \t latency_ms \t was_stored \t attempt \t state \t reason`, as receipt_lines.py says.
-- The first line of an `e1` is `at_ms \t instance`. The others are `kind \t entry \t seq \t attempt \t who \t reason \t held_ms`
-- and a head, without the empty columns at their end.

local events, ids, ended, ended_before, seqs, seqs_before, bytes, lanes, waiting, due, presence, instances, blocks,
  agents, outbox, failures, drain, seen, caps, totals, roster, threads, sums,
  shadows, shadowed, pushes = unpack(KEYS, 1, 26)
local SHARD_KEYS = 26
local GROUP = 'agent'
local READY, PARKED = '~ready', '~parked'
local ALL_LANES = '9876543210'
local RUN_BYTES = 4096  -- of receipts in one field of the outbox, as JSON
local JSON_BYTES = 105  -- of a receipt's JSON, besides its line and the tenant
local MOST_UNPACKED = 6000  -- even, so that pairs stay together
local OPTS = '^(%d+)\t(%d+)\t(%d+)\t(%d+)\t(%d+)\t(%d+)\t(%d)\t(%d)\t(%d)'
local KEY_PARTS = '^([^\t]*)\t([^\t]*)\t([^\t]*)\t([^\t]*)'

local book = {now_ms = 0, now = '', at = '', instance = '', own = '', first_line = '', events_max = 0, events = {}, ended = {}, ids = {}, bytes = {},
  receipts = {}, mail = {}, threads = {}, failed = {}, pulled = {},
  wakes = {}, publish = '', wake_prefix = '', ended_ms = 0, timed = false,
  replies = {}, wakes_sent = 0, wakes_unheard = 0, logged = ''}

-- A group lost to an operator or a wipe is made again at 0, so that nothing in the stream is out of reach.
local function in_group(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then
    if not string.find(reply.err, 'NOGROUP', 1, true) then error(reply) end
    return nil
  end
  return reply
end

local function make_group(box)
  redis.call('XGROUP', 'CREATE', box, GROUP, '0', 'MKSTREAM')
end

local function pending(box, ...)
  return in_group('XPENDING', box, GROUP, ...) or {}
end

local function handle(id, lane)
  if lane == 0 then return id end
  return id .. 'p' .. lane
end

-- came_before: ids sort as numbers.
local function came_before(id, other)
  local ms, n = string.match(id, '^(%d+)-(%d+)$')
  local other_ms, other_n = string.match(other, '^(%d+)-(%d+)$')
  if ms ~= other_ms then return tonumber(ms) < tonumber(other_ms) end
  return tonumber(n) <= tonumber(other_n)
end

-- text: a whole number as digits. Joined to a string as it is, a number loses what goes beyond 14 digits, and time.
local function text(number)
  return string.format('%.0f', number)
end

local function tenant_of(address)
  return string.match(address, '^[^/]*')
end

-- tally: a tenant has so much more, or less, of something. What comes to nothing leaves nothing.
local function tally(tenant, what, change)
  local field = tenant .. '\t' .. what
  if change ~= 0 and redis.call('HINCRBY', sums, field, change) == 0 then redis.call('HDEL', sums, field) end
end

-- tally_mail: note that mail has come or gone; flush() adds it up once for each tenant.
local function tally_mail(tenant, messages, size)
  local so_far = book.mail[tenant]
  if so_far then
    so_far[1], so_far[2] = so_far[1] + messages, so_far[2] + size
  else
    book.mail[tenant] = {messages, size}
  end
end

-- in_thread: how a message with a thread stands in the index: its thread's members are in the order of their numbers.
local function in_thread(thread_key, seq)
  return thread_key .. '\t' .. string.format('%016.0f', seq)
end

-- end_push: nothing is pushed from a mailbox before its session has taken the next time. Whatever is done to a mailbox
-- but by accept_plain and ack_plain ends it: what waits there comes before what is new, and credits are of a known window.
local function end_push(address)
  if book.pulled[address] then return end
  book.pulled[address] = true
  redis.call('HDEL', pushes, address)
end

-- enrol: an agent stands on the roster while it is registered or has mail.
local function enrol(address)
  redis.call('ZADD', roster, 0, address)
end

-- strike: off the roster with an agent that has no mail, unless it is registered. Says whether it was struck off.
local function strike(address)
  if redis.call('HEXISTS', agents, address) == 1 then return false end
  redis.call('ZREM', roster, address)
  return true
end

-- note_event: flush() writes them all as the lines of one entry of the event log.
local function note_event(line)
  book.events[#book.events + 1] = line
end

-- doer: how events name who did it. A session of this instance is named without it, and so begins with a dot. The dot
-- that another name begins with is escaped.
local function doer(who)
  if string.sub(who, 1, #book.own) == book.own then return string.sub(who, #book.own) end
  return (string.gsub(who, '^%.', '\\.'))
end

-- arrival: note what became of a message that was sent. It has the whole head, which no later event repeats.
local function arrival(kind, entry, seq, reason, head)
  note_event(kind .. '\t' .. entry .. '\t' .. seq .. '\t\t\t' .. reason .. '\t\t' .. head)
end

-- event: note one transition of a message in a mailbox, or of an agent's session; `key` names the message or the agent.
-- A first delivery has no event of its own: whatever ends it tells how long it was held.
local function event(kind, entry, attempt, who, reason, held_ms, key)
  note_event(kind .. '\t' .. entry .. '\t\t' .. attempt .. '\t' .. doer(who) .. '\t' .. reason .. '\t' .. held_ms ..
    '\t' .. key)
end

local function agent_key(address)
  return (string.gsub(address, '/', '\t', 1))
end

-- held_ms: for how long a pending row has had its owner.
local function held_ms(row)
  return text(row[3])
end

-- back_at: when an agent has said that it will be back, or 0.
local function back_at(address)
  return string.match(redis.call('HGET', seen, address) or '', '\t(%d+)$') or '0'
end

-- end_record: what `ended` keeps of a message: `entry \t ms after it`, and `\t how \t attempt` unless it was acked at the
-- first. Most are.
local function end_record(how, entry, attempt)
  local record = entry .. '\t' .. text(book.now_ms - string.match(entry, '^%d+'))
  if how == 'acked' and attempt == '1' then return record end
  return record .. '\t' .. how .. '\t' .. attempt
end

-- parse_end: how a message ended, when, its entry and attempt.
local function parse_end(record)
  local id, after_ms, rest = string.match(record, '^([^\t]+)\t(%-?%d+)(.*)$')
  local how, attempt = string.match(rest, '^\t(%a+)\t(%d+)$')
  return how or 'acked', string.match(id, '^%d+') + after_ms, id, tonumber(attempt or 1)
end

-- note_receipt: tell a sender how its message ended; flush() puts what one sender gets into one field of the outbox.
local function note_receipt(sender, id, to, how, attempt, was_stored, accepted_at, reason_json)
  local latency_ms = text(math.max(0, book.now_ms - tonumber(accepted_at)))
  local columns = table.concat({id, to, latency_ms, was_stored and '1' or '', attempt ~= '1' and attempt or '',
    how ~= 'acked' and how or '', reason_json}, '\t')
  local line = string.match(columns, '^(.-)\t*$')
  local so_far = book.receipts[sender]
  if so_far then so_far[#so_far + 1] = line else book.receipts[sender] = {line} end
end

-- wake: ring every session of an address but one, through the channel of the instance that holds it.
local function wake(address, sessions, word, except)
  if not sessions then return end
  local line = word .. '\t' .. address .. (except ~= '' and '\t' .. except or '')
  for session in string.gmatch(sessions, '([^\t\n]+)\t[^\n]*') do
    if session ~= except then
      local instance = string.match(session, '^[^.]+')
      local lines = book.wakes[instance]
      if not lines then
        lines = {}
        book.wakes[instance] = lines
      end
      -- One line for each instance: it rings all its sessions of the address.
      if lines[#lines] ~= line then lines[#lines + 1] = line end
    end
  end
end

local function is_alive(session)
  local until_ms = redis.call('HGET', instances, string.match(session, '^[^.]+'))
  return until_ms and (tonumber(until_ms) or 0) > book.now_ms
end

-- is_online: whether one of these sessions is there.
local function is_online(sessions)
  for session in string.gmatch(sessions or '', '([^\t\n]+)\t[^\n]*') do
    if is_alive(session) then return true end
  end
  return false
end

-- served_exclusively: whether a session that wants the mailbox for itself is there.
local function served_exclusively(sessions)
  for session, mode in string.gmatch(sessions or '', '([^\t\n]+)\t([^\t\n]*)') do
    if mode == 'exclusive' and is_alive(session) then return true end
  end
  return false
end

-- tell: one line for the instance of a session.
local function tell(session, line)
  local instance = string.match(session, '^[^.]+')
  local lines = book.wakes[instance] or {}
  lines[#lines + 1] = line
  book.wakes[instance] = lines
end

-- settle_waiting: an empty mailbox waits for nobody. A caller that names few lanes leaves the rest to the sweeper.
-- Whoever is served by a session is registered, and stays on the roster without a look.
local function settle_waiting(address, boxes, is_registered)
  if #boxes < #ALL_LANES and redis.call('HEXISTS', lanes, address) == 1 then return end
  for _, box in ipairs(boxes) do
    if redis.call('XLEN', box) > 0 then return end
  end
  redis.call('ZREM', waiting, address)
  redis.call('HDEL', bytes, address)
  book.bytes[address] = nil
  if not is_registered and strike(address) then
    -- Nobody serves it, so that nobody would ever reap it.
    redis.call('DEL', unpack(boxes))
    redis.call('HDEL', lanes, address)
    redis.call('HDEL', drain, address)
  end
end

-- parts: the bounds of runs of a list that can be unpacked (Lua's stack ends at 8000 values), or make one text of events.
local function parts(list)
  local last = 0
  return function()
    local first = last + 1
    last = math.min(last + MOST_UNPACKED, #list)
    if first <= last then return first, last end
  end
end

-- put_receipts: what one sender gets, in runs of about RUN_BYTES, so that a number of them also bounds a frame.
local function put_receipts(fields, sender, receipts)
  local first, size = 1, 0
  for n, receipt in ipairs(receipts) do
    size = size + #receipt + #sender + JSON_BYTES
    if size >= RUN_BYTES or n == #receipts then
      fields[#fields + 1] = 'receipts'
      fields[#fields + 1] = sender .. '\t' .. text(n - first + 1) .. '\t' .. book.now .. '\n' ..
        table.concat(receipts, '\n', first, n)
      first, size = n + 1, 0
    end
  end
end

-- flush: write what the transition noted. Returns the outbox entry of its receipts and replies, or '', and its fields.
-- Of receipts to thousands of senders a further entry holds the rest, which stays in the outbox for the worker.
local function flush()
  local sent, fields = '', book.replies
  for first, last in parts(book.ids) do redis.call('HDEL', ids, unpack(book.ids, first, last)) end
  for first, last in parts(book.failed) do redis.call('HDEL', failures, unpack(book.failed, first, last)) end
  for first, last in parts(book.threads) do redis.call('ZREM', threads, unpack(book.threads, first, last)) end
  for first, last in parts(book.ended) do redis.call('HSET', ended, unpack(book.ended, first, last)) end
  if #book.ended > 0 then redis.call('PEXPIRE', ended, book.ended_ms, 'NX') end
  for address, change in pairs(book.bytes) do redis.call('HINCRBY', bytes, address, change) end
  for tenant, change in pairs(book.mail) do
    tally(tenant, 'messages', change[1])
    tally(tenant, 'bytes', change[2])
  end
  for sender, receipts in pairs(book.receipts) do put_receipts(fields, sender, receipts) end
  for first, last in parts(fields) do
    local entry = redis.call('XADD', outbox, '*', unpack(fields, first, last))
    if first == 1 then sent = entry end
  end
  if #fields > MOST_UNPACKED then fields = {unpack(fields, 1, MOST_UNPACKED)} end
  for first, last in parts(book.events) do
    local lines = table.concat(book.events, '\n', first, last)
    book.logged = redis.call('XADD', events, 'MAXLEN', '~', book.events_max, '*', 'e1', book.first_line .. lines)
  end
  for instance, lines in pairs(book.wakes) do
    local heard_by = redis.call(book.publish, book.wake_prefix .. instance, table.concat(lines, '\n'))
    book.wakes_sent = book.wakes_sent + 1
    if heard_by == 0 then book.wakes_unheard = book.wakes_unheard + 1 end
  end
  return sent, fields
end

-- open: reads the CALL values; returns the rest.
local function open()
  local call = cmsgpack.unpack(ARGV[1])
  book.now_ms, book.instance, book.events_max, book.ended_ms, book.publish, book.wake_prefix = unpack(call, 1, 6)
  book.now = text(book.now_ms)
  book.at = '\t' .. book.now .. '\t'
  book.own = book.instance .. '.'
  book.first_line = book.now .. '\t' .. book.instance .. '\n'
  return unpack(call, 7)
end
