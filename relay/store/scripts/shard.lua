-- shard: what every script shares: the names of a shard's keys, and the books that a transition keeps.
--
-- Scripts that say `-- Uses shard` have this text put before them. Their KEYS begin with the SHARD keys below,
-- in this order, and go on with what the script's own header says. ARGV[1] is one msgpack array.
--
-- SHARD  1 events        STREAM  every transition, one entry per call, one field `e1` per event
--        2 ids           HASH    message key -> entry handle, of what is in a mailbox
--        3 ended         HASH    message key -> how, at_ms, entry, attempt; the current bucket of the dedup window
--        4 ended_before  HASH    the same, the bucket before
--        5 seqs          HASH    thread key -> last sequence number; the current bucket
--        6 seqs_before   HASH    the same, the bucket before
--        7 bytes         HASH    address -> payload bytes in its mailbox
--        8 lanes         HASH    address -> the priorities above 0 that its mailbox uses, as digits
--        9 waiting       ZSET    address by the time of its oldest entry
--       10 due           ZSET    kind, address, handle by the time when something must happen to an entry
--       11 presence      HASH    address -> its sessions, a line each: session, mode (exclusive, shared, puller or sender)
--       12 instances     HASH    instance -> until when it is believed to be alive
--       13 blocks        HASH    address -> the senders it has blocked, a line each
--       14 agents        HASH    address -> registration (JSON)
--       15 outbox        STREAM  receipts and replies on their way to another shard
--       16 failures      HASH    address, handle -> what failed so far, a line each
--       17 drain         HASH    address -> last ack at_ms, smoothed ms per ack; only of mailboxes near their cap
--       18 seen          HASH    address -> last seen at_ms, next_active_at_ms or 0
--       19 caps          HASH    address -> max_messages, max_bytes; only of agents with caps of their own
--       20 totals        HASH    how -> how many messages have ended so, other than by ack
--
-- A message key is `tenant \t to \t from \t id`; a head is that and `\t type \t thread \t priority \t bytes`.
-- opts are `seq \t accepted_at \t expires_at \t not_before \t max_attempts \t ack_timeout_ms \t receipt \t request \t timed`,
-- where receipt is 0 (none), 1 (delivered and dead) or 2 (also expired), request is 0, 1 or 2
-- (its reply goes to the task only), and timed is 1 when the message itself may stand in `due`.
-- An entry has the fields head, opts, body in this order. Its handle is its stream id, and `p<priority>` above 0.

local events, ids, ended, ended_before, seqs, seqs_before, bytes, lanes, waiting, due, presence, instances, blocks,
  agents, outbox, failures, drain, seen, caps, totals = unpack(KEYS, 1, 20)
local SHARD_KEYS = 20
local GROUP = 'agent'
local READY, PARKED = '~ready', '~parked'
local ALL_LANES = '9876543210'
local PULLER = 'http.'  -- how the consumers of pullers begin
local MOST_UNPACKED = 6000  -- even, so that pairs stay together
local OPTS = '^(%d+)\t(%d+)\t(%d+)\t(%d+)\t(%d+)\t(%d+)\t(%d)\t(%d)\t(%d)$'
local OPTS_AT_END = '^(%d+)\t(%d+)\t.*(%d)\t%d\t(%d)$'    -- seq, accepted_at, receipt, timed
local HEAD = '^(([^\t]*)\t([^\t]*)\t([^\t]*)\t([^\t]*)).*\t(%d+)$'  -- key, tenant, to, from, id, bytes
local KEY_PARTS = '^([^\t]*)\t([^\t]*)\t([^\t]*)\t([^\t]*)'

local book = {now_ms = 0, now = '', at = '', where = '', events_max = 0, events = {}, ended = {}, ids = {}, bytes = {}, receipts = {},
  wakes = {}, publish = '', wake_prefix = '', ended_ms = 0, timed = false,
  replies = {}, wakes_sent = 0, wakes_unheard = 0}

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

-- text: a whole number as digits. Numbers that are joined to strings go through a slow general format otherwise.
local function text(number)
  return string.format('%d', number)
end

-- event: note one transition; flush() writes them all as one entry of the event log.
local function event(kind, entry, seq, attempt, who, reason, accepted_at, taken_at, head)
  local noted = book.events
  noted[#noted + 1] = 'e1'
  noted[#noted + 1] = kind .. book.at .. entry .. '\t' .. seq .. '\t' .. attempt .. '\t' .. who .. book.where .. reason ..
    '\t' .. accepted_at .. '\t' .. taken_at .. '\t' .. head
end

local function agent_head(address)
  return (string.gsub(address, '/', '\t', 1)) .. '\t\t\t\t\t\t'
end

local function json_text(text)
  if string.find(text, '["\\]') then text = string.gsub(text, '["\\]', '\\%0') end
  return '"' .. text .. '"'
end

-- note_receipt: tell a sender how its message ended; flush() puts what one sender gets into one field of the outbox.
local function note_receipt(sender, id, address, how, attempt, was_stored, accepted_at, reason_json)
  local state = how == 'acked' and 'delivered' or how
  local receipt = '{"id":' .. json_text(id) .. ',"to":"' .. address .. '","state":"' .. state .. '","was_stored":' ..
    (was_stored and 'true' or 'false') .. ',"attempt":' .. attempt .. ',"at_ms":' .. book.now .. ',"latency_ms":' ..
    text(math.max(0, book.now_ms - tonumber(accepted_at))) .. (reason_json ~= '' and ',"reason":' .. reason_json or '') .. '}'
  local so_far = book.receipts[sender]
  if so_far then so_far[#so_far + 1] = receipt else book.receipts[sender] = {receipt} end
end

-- ending: note that a message has left its mailbox. `reason` is plain text for the event, `reason_json` for the receipt.
local function ending(how, entry, attempt, fields, who, reason, reason_json, taken_at, was_stored)
  local head = fields[2]
  local seq, accepted_at, receipt, timed = string.match(fields[4], OPTS_AT_END)
  local key, tenant, to, from, id, size = string.match(head, HEAD)
  local address = tenant .. '/' .. to
  local times = text(attempt)
  event(how, entry, seq, times, who, reason, accepted_at, taken_at, head)
  book.ids[#book.ids + 1] = key
  book.ended[#book.ended + 1] = key
  book.ended[#book.ended + 1] = how .. book.at .. entry .. '\t' .. times
  book.bytes[address] = (book.bytes[address] or 0) - tonumber(size)
  if timed == '1' or book.timed then
    local place = '\t' .. address .. '\t' .. entry
    redis.call('ZREM', due, 'hold' .. place, 'ttl' .. place, 'park' .. place, 'bury' .. place)
  end
  if how ~= 'acked' then redis.call('HINCRBY', totals, how, 1) end
  -- A first attempt that is acked never failed; any other end may come after a failure.
  if how ~= 'acked' or attempt > 1 then redis.call('HDEL', failures, address .. '\t' .. entry) end
  if receipt == '2' and how ~= 'cancelled' or receipt == '1' and (how == 'acked' or how == 'dead') then
    note_receipt(tenant .. '/' .. from, id, address, how, times, was_stored, accepted_at, reason_json)
  end
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
  return until_ms and tonumber(until_ms) > book.now_ms
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
  for session, mode in string.gmatch(sessions or '', '([^\t\n]+)\t([^\n]*)') do
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

-- release_all: what a session held goes back to the front of the line, uncounted. Returns how many.
local function release_all(address, box, priority, session, reason)
  local rows = in_group('XPENDING', box, GROUP, '-', '+', 10000, session)
  if not rows then return 0 end
  for _, row in ipairs(rows) do
    local found = redis.call('XRANGE', box, row[1], row[1])[1]
    if found then
      local entry = handle(row[1], priority)
      local seq, accepted_at = string.match(found[2][4], OPTS)
      redis.call('XCLAIM', box, GROUP, READY, 0, row[1], 'JUSTID')
      redis.call('ZREM', due, 'hold\t' .. address .. '\t' .. entry)
      event('released', entry, seq, row[4], session, reason, accepted_at, text(book.now_ms - row[3]), found[2][2])
    else
      redis.call('XACK', box, GROUP, row[1])
    end
  end
  -- Only now: a consumer that is deleted takes its pending entries with it.
  redis.call('XGROUP', 'DELCONSUMER', box, GROUP, session)
  return #rows
end

-- drop_puller: the consumer of a puller that holds nothing any more is deleted, for it has no session whose end would.
local function drop_puller(boxes, session)
  if string.sub(session, 1, #PULLER) ~= PULLER then return end
  for _, box in ipairs(boxes) do
    local rows = in_group('XPENDING', box, GROUP, '-', '+', 1, session)
    if rows and #rows == 0 then redis.call('XGROUP', 'DELCONSUMER', box, GROUP, session) end
  end
end

-- expire: end an entry whose time is over, wherever it is.
local function expire(address, box, priority, id, fields)
  local row = pending(box, id, id, 1)[1]
  redis.call('XACK', box, GROUP, id)
  redis.call('XDEL', box, id)
  ending('expired', handle(id, priority), row and row[4] or 0, fields, '', '', '', '', false)
  if row and row[2] ~= READY and row[2] ~= PARKED then
    drop_puller({box}, row[2])
    tell(row[2], 'lost\t' .. row[2] .. '\t' .. handle(id, priority))
  end
end

-- settle_waiting: an empty mailbox waits for nobody. A caller that names few lanes leaves the rest to the sweeper.
local function settle_waiting(address, boxes)
  if #boxes < #ALL_LANES and redis.call('HEXISTS', lanes, address) == 1 then return end
  for _, box in ipairs(boxes) do
    if redis.call('XLEN', box) > 0 then return end
  end
  redis.call('ZREM', waiting, address)
  redis.call('HDEL', bytes, address)
  book.bytes[address] = nil
end

-- parts: the bounds of runs of a list that can be unpacked; Lua's stack ends at 8000 values.
local function parts(list)
  local last = 0
  return function()
    local first = last + 1
    last = math.min(last + MOST_UNPACKED, #list)
    if first <= last then return first, last end
  end
end

-- flush: write what the transition noted. Returns the outbox entry of its receipts and replies, or '', and its fields.
-- Of receipts to thousands of senders a further entry holds the rest, which stays in the outbox for the worker.
local function flush()
  local sent, fields = '', book.replies
  for first, last in parts(book.ids) do redis.call('HDEL', ids, unpack(book.ids, first, last)) end
  for first, last in parts(book.ended) do redis.call('HSET', ended, unpack(book.ended, first, last)) end
  if #book.ended > 0 then redis.call('PEXPIRE', ended, book.ended_ms, 'NX') end
  for address, change in pairs(book.bytes) do redis.call('HINCRBY', bytes, address, change) end
  for sender, receipts in pairs(book.receipts) do
    fields[#fields + 1] = 'receipts'
    fields[#fields + 1] = sender .. '\t' .. #receipts .. '\t' .. table.concat(receipts, ',')
  end
  for first, last in parts(fields) do
    local entry = redis.call('XADD', outbox, '*', unpack(fields, first, last))
    if first == 1 then sent = entry end
  end
  if #fields > MOST_UNPACKED then fields = {unpack(fields, 1, MOST_UNPACKED)} end
  for first, last in parts(book.events) do
    redis.call('XADD', events, 'MAXLEN', '~', book.events_max, '*', unpack(book.events, first, last))
  end
  for instance, lines in pairs(book.wakes) do
    local heard_by = redis.call(book.publish, book.wake_prefix .. instance, table.concat(lines, '\n'))
    book.wakes_sent = book.wakes_sent + 1
    if heard_by == 0 then book.wakes_unheard = book.wakes_unheard + 1 end
  end
  return sent, fields
end

-- open: every call begins with the same seven values; returns the rest.
local function open()
  local call = cmsgpack.unpack(ARGV[1])
  local instance
  book.now_ms, instance, book.events_max, book.ended_ms, book.publish, book.wake_prefix = unpack(call, 1, 6)
  book.now = text(book.now_ms)
  book.at = '\t' .. book.now .. '\t'
  book.where = '\t' .. instance .. '\t'
  return unpack(call, 7)
end
