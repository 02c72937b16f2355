#!lua flags=allow-oom
-- ack: confirm deliveries. What its holder confirms leaves the mailbox, and its sender is told.
-- Uses shard, records, consumers, exchanges, fence
--
-- KEYS  SHARD
--       27 calls  HASH  see fence
--       28+ per mailbox: one STREAM per lane, in the order of its `priorities`
-- ARGV  CALL
--         exchange, part
--         mailboxes     each {address, priorities, session, backlog_end, timed, near_cap, entries}, where
--                       backlog_end  the last id that was there when the session began
--                       timed        whether this session's holds may stand in `due`
--                       near_cap     a mailbox at least this deep has its pace of acks kept, for `retry_after_ms`
--                       entries      {lane index, stream id, attempt or 0 for any, lane index, …}
-- Returns {outbox entry or "", its fields, refused, its entry in the event log or ""} with refused
--         {mailbox index, handle, "lock_lost" | "not_found", …}

local exchange, part, mailboxes = open()
local before = carried_out(exchange, part)
if before then return {'', {}, before, ''} end
local refused = {}

-- Acks come in the order of delivery, so two range reads usually answer for all of them; single reads do the rest.
local function look_up(box, session, list)
  local owned, found = {}, {}
  for _, row in ipairs(pending(box, list[1], list[#list], #list, session)) do owned[row[1]] = row end
  for _, row in ipairs(redis.call('XRANGE', box, list[1], list[#list], 'COUNT', #list)) do found[row[1]] = row[2] end
  for _, id in ipairs(list) do
    owned[id] = owned[id] or pending(box, id, id, 1, session)[1]
    if owned[id] and not found[id] then
      local row = redis.call('XRANGE', box, id, id)[1]
      found[id] = row and row[2]
    end
  end
  return owned, found
end

-- settle_mailbox: note what the acks of this call have left of a mailbox, and how fast they were.
local function settle_mailbox(address, boxes, near_cap, done, session)
  local depth = 0
  for _, box in ipairs(boxes) do depth = depth + redis.call('XLEN', box) end
  if depth == 0 then settle_waiting(address, boxes, not is_puller(session)) end
  if depth < near_cap then return end
  local before = redis.call('HGET', drain, address)
  local pace = 1000
  if before then
    local at_ms, smoothed = string.match(before, '^(%d+)\t(%d+)$')
    pace = math.floor((tonumber(smoothed) * 7 + math.max(0, book.now_ms - tonumber(at_ms)) / done) / 8)
  end
  redis.call('HSET', drain, address, book.now .. '\t' .. text(pace))
end

local next_key, acked = FENCED_KEYS, {}  -- address -> how many, and the last of the rows about it: several may hold of one
for m, mailbox in ipairs(mailboxes) do
  local address, priorities, session, backlog_end, timed, near_cap, entries = unpack(mailbox)
  book.timed = timed
  local boxes, by_lane, attempts = {}, {}, {}
  for n = 1, #priorities do boxes[n] = KEYS[next_key + n] end
  next_key = next_key + #priorities
  for n = 1, #entries, 3 do
    local lane, id, attempt = entries[n], entries[n + 1], entries[n + 2]
    by_lane[lane] = by_lane[lane] or {}
    table.insert(by_lane[lane], id)
    attempts[lane .. '/' .. id] = attempt
  end

  local confirmed = 0
  for lane, list in pairs(by_lane) do
    local box, priority = boxes[lane], tonumber(string.sub(priorities, lane, lane))
    local owned, found = look_up(box, session, list)
    local done = {}
    for _, id in ipairs(list) do
      local row, fields, entry = owned[id], found[id], handle(id, priority)
      local attempt = attempts[lane .. '/' .. id]
      if row and fields and (attempt == 0 or attempt == row[4]) then
        local was_stored = came_before(id, backlog_end)
        ending('acked', address, entry, row[4], fields, session, '', '', held_ms(row), was_stored)
        done[#done + 1] = id
        owned[id] = nil
      else
        local there = fields or redis.call('XRANGE', box, id, id)[1]
        refused[#refused + 1] = m
        refused[#refused + 1] = entry
        refused[#refused + 1] = there and 'lock_lost' or 'not_found'
      end
    end
    if #done > 0 then
      redis.call('XACK', box, GROUP, unpack(done))
      redis.call('XDEL', box, unpack(done))
      confirmed = confirmed + #done
    end
  end
  if confirmed > 0 then
    local before = acked[address]
    acked[address] = {boxes, near_cap, (before and before[3] or 0) + confirmed, session}
  end
  drop_puller(boxes, session)
end
for address, row in pairs(acked) do settle_mailbox(address, unpack(row)) end

local sent, fields = flush()
remember(part, refused)
return {sent, fields, refused, book.logged}
