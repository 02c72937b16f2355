#!lua flags=allow-oom
-- ack_plain: confirm deliveries that their sessions are believed to hold: all of this call, or none.
-- What is to be written comes ready from the instance, which has kept it since the delivery. If a mailbox is not as it
-- believes, or uses lanes, nothing happens: ack does it.
-- Uses exchanges
--
-- KEYS  1 calls     HASH    instance -> the record of its last exchange here; see exchanges
--       2 events    STREAM  every transition, one entry per call, its field `e1` has a line per event
--       3 ids       HASH    message key -> entry handle, of what is in a mailbox
--       4 ended     HASH    message key -> how it ended, see end_record; the current bucket of the dedup window
--       5 bytes     HASH    address -> payload bytes in its mailbox
--       6 waiting   ZSET    address by the time of its oldest entry
--       7 due       ZSET    kind, address, handle by the time when something must happen to an entry
--       8 pushes    HASH    address -> session with credits, how many it has left, how many messages were pushed to it
--       9 threads   ZSET    thread key, sequence number of what waits and has a thread
--       10 sums     HASH    tenant, what -> how much
--       11 lanes    HASH    address -> the priorities above 0 that its mailbox uses
--       12 failures HASH    address, handle -> what failed so far
--       13 drain    HASH    address -> last ack at_ms, smoothed ms per ack; only of mailboxes near their cap
--       14 outbox   STREAM  receipts and replies on their way to their sender
--       15+ per mailbox: its lane 0, STREAM
-- ARGV  1 now_ms, 2 instance, 3 exchange, 4 part, 5 events_max, 6 ended_ms, 7 publish, 8 wake_prefix, 9 near_cap,
--       10 what stands in the event log, 11 mailboxes, 12 entries, 13 tenants, 14 senders, 15 due, 16 threads: how many
--       there are of each, and then
--         of all mailboxes  address …, session …, entries …, payload bytes …
--         of all entries    stream id …, message key …, record for `ended` …
--         of all tenants    name …, messages …, bytes …
--         of all senders    session that sent …, `sender \t count \t at_ms` and a line for each receipt …
--         of all due and threads  member …
-- Returns {"other", index of a mailbox, …} with the mailboxes because of which nothing happened, else
--         {"acked", its entry in the event log or "", outbox entry, its receipts, …} with those that the sender's instance
--         did not hear of

local calls, events, ids, ended, bytes, waiting, due, pushes, threads, sums, lanes, failures, drain,
  outbox = unpack(KEYS, 1, 14)
local now, instance, exchange, part, events_max, ended_ms, publish, wake_prefix, near_cap, lines, mailboxes, entries,
  tenants, senders, dues, in_threads = unpack(ARGV, 1, 16)
exchange, near_cap = tonumber(exchange), tonumber(near_cap)
part = tonumber(part)
local record, before = last_exchange(calls, instance, tonumber(now), exchange, part)
if before then return {'acked', ''} end
local GROUP, OWN_KEYS = 'agent', 14

-- The place before the first value of each list.
local ADDRESS = 16
local SESSION = ADDRESS + mailboxes
local COUNT = SESSION + mailboxes
local SIZE = COUNT + mailboxes
local ID = SIZE + mailboxes
local KEY = ID + entries
local RECORD = KEY + entries
local TENANT = RECORD + entries
local SENDER = TENANT + 3 * tenants
local RECEIPTS = SENDER + senders
local DUE = RECEIPTS + senders
local THREAD = DUE + dues

local function is_held(box, session, first, final)
  local rows = redis.pcall('XPENDING', box, GROUP, ARGV[ID + first], ARGV[ID + final], final - first + 1, session)
  if rows.err then return false end
  for n = first, final do
    local row = rows[n - first + 1]
    if not row or row[1] ~= ARGV[ID + n] then
      rows = redis.call('XPENDING', box, GROUP, ARGV[ID + n], ARGV[ID + n], 1, session)
      if #rows == 0 then return false end
      rows = {}
    end
  end
  return true
end

-- note_pace: how fast a mailbox near its cap is drained, for `retry_after_ms`.
local function note_pace(address, count)
  local at_ms, smoothed = string.match(redis.call('HGET', drain, address) or '', '^(%d+)\t(%d+)$')
  local pace = at_ms and math.floor((smoothed * 7 + math.max(0, now - at_ms) / count) / 8) or 1000
  redis.call('HSET', drain, address, now .. '\t' .. string.format('%.0f', pace))
end

local others, i = {'other'}, 0
local uses_lanes = redis.call('EXISTS', lanes) == 1 and redis.call('HMGET', lanes, unpack(ARGV, ADDRESS + 1, ADDRESS + mailboxes)) or {}
for m = 1, mailboxes do
  local box, first = KEYS[OWN_KEYS + m], i + 1
  i = i + ARGV[COUNT + m]
  if uses_lanes[m] or not is_held(box, ARGV[SESSION + m], first, i) then others[#others + 1] = m end
end
if #others > 1 then return others end

local pushed = redis.call('HMGET', pushes, unpack(ARGV, ADDRESS + 1, ADDRESS + mailboxes))
local new_pushes, empty = {}, {}
local left, confirmed, freed = {}, {}, {}  -- address -> what it still has, what was acked, bytes: several may hold of one
i = 0
for m = 1, mailboxes do
  local box, address, count = KEYS[OWN_KEYS + m], ARGV[ADDRESS + m], tonumber(ARGV[COUNT + m])
  redis.call('XACK', box, GROUP, unpack(ARGV, ID + i + 1, ID + i + count))
  redis.call('XDEL', box, unpack(ARGV, ID + i + 1, ID + i + count))
  left[address] = redis.call('XLEN', box)
  confirmed[address] = (confirmed[address] or 0) + count
  freed[address] = (freed[address] or 0) + ARGV[SIZE + m]
  if pushed[m] then
    local session, credits, total = string.match(pushed[m], '^([^\t]+)\t(%d+)\t(%d+)$')
    if session == ARGV[SESSION + m] then
      new_pushes[#new_pushes + 1] = address
      new_pushes[#new_pushes + 1] = string.format('%s\t%.0f\t%s', session, credits + count, total)
    end
  end
  i = i + count
end
for address, depth in pairs(left) do
  if depth == 0 then
    empty[#empty + 1] = address
  else
    redis.call('HINCRBY', bytes, address, -freed[address])
    if depth >= near_cap then note_pace(address, confirmed[address]) end
  end
end
if #empty > 0 then
  redis.call('ZREM', waiting, unpack(empty))
  redis.call('HDEL', bytes, unpack(empty))
end
if #new_pushes > 0 then redis.call('HSET', pushes, unpack(new_pushes)) end

local records = {}
for n = 1, entries do records[2 * n - 1], records[2 * n] = ARGV[KEY + n], ARGV[RECORD + n] end
redis.call('HDEL', ids, unpack(ARGV, KEY + 1, KEY + entries))
redis.call('HSET', ended, unpack(records))
redis.call('PEXPIRE', ended, ended_ms, 'NX')
local logged = redis.call('XADD', events, 'MAXLEN', '~', events_max, '*', 'e1', lines)
if dues ~= '0' then redis.call('ZREM', due, unpack(ARGV, DUE + 1, DUE + dues)) end
if in_threads ~= '0' then redis.call('ZREM', threads, unpack(ARGV, THREAD + 1, THREAD + in_threads)) end
if redis.call('EXISTS', failures) == 1 then
  -- Also a first attempt may have failed before: a group that is made anew counts from 1 again.
  local failed = {}
  i = 0
  for m = 1, mailboxes do
    for n = i + 1, i + ARGV[COUNT + m] do failed[n] = ARGV[ADDRESS + m] .. '\t' .. ARGV[ID + n] end
    i = i + ARGV[COUNT + m]
  end
  redis.call('HDEL', failures, unpack(failed))
end
for t = 1, tenants do
  for n, what in ipairs({'messages', 'bytes'}) do
    local field = ARGV[TENANT + t] .. '\t' .. what
    if redis.call('HINCRBY', sums, field, -ARGV[TENANT + n * tenants + t]) == 0 then redis.call('HDEL', sums, field) end
  end
end

local receipts, results = {}, {'acked', logged}  -- instance -> {session, outbox entry, receipts, …}
for s = 1, senders do
  local session = ARGV[SENDER + s]
  local there = string.match(session, '^[^.]*')
  local sent = redis.call('XADD', outbox, '*', 'via', session, 'receipts', ARGV[RECEIPTS + s])
  receipts[there] = receipts[there] or {}
  local list = receipts[there]
  list[#list + 1] = session
  list[#list + 1] = sent
  list[#list + 1] = ARGV[RECEIPTS + s]
end
for there, list in pairs(receipts) do
  -- Nobody hears of those that came by HTTP.
  local heard_by = there ~= '' and redis.call(publish, wake_prefix .. there, '\1' .. cmsgpack.pack(list)) or 0
  if heard_by == 0 then
    for n = 1, #list, 3 do
      results[#results + 1] = list[n + 1]
      results[#results + 1] = list[n + 2]
    end
  end
end
keep_outcome(calls, instance, record, part, 1)
return results
