#!lua
-- reply: answer a request that this session holds. The last answer also acks it; a part does not.
-- Not on a full server: an answer may be far larger than what it ends. Its holder may still ack, nack or release.
-- Uses shard, records, consumers, exchanges, fence, holding
--
-- KEYS  SHARD
--       27 calls  HASH  see fence
--       28 parts  HASH  count and bytes of the parts that were kept so far
--       29+ one STREAM per lane, in the order of `priorities`
-- ARGV  CALL
--         exchange, part
--         address, priorities, session, backlog_end,
--         lane index, stream id, attempt or 0 for any,
--         more          whether this is a part
--         payload       JSON
--         max_parts, max_bytes  of one request; its last answer is not counted
--         outbox_max    how many entries may wait in the outbox before a part is refused
-- Returns {outbox entry or "", its fields, "replied" | "lock_lost" | "not_found" | "not_a_request" | "too_large" | "outbox_full",
--         its entry in the event log or ""}

local exchange, part, address, priorities, session, backlog_end, lane, id, attempt, more, payload, max_parts, max_bytes, outbox_max = open()
local before = carried_out(exchange, part)
if before then return {'', {}, before, ''} end
local parts_kept = KEYS[FENCED_KEYS + 1]
local boxes = {unpack(KEYS, FENCED_KEYS + 2, FENCED_KEYS + 1 + #priorities)}
local box, priority = boxes[lane], tonumber(string.sub(priorities, lane, lane))
local row, fields = held(box, id, session, attempt)
local function refuse(word)
  remember(part, word)
  return {'', {}, word, ''}
end
if not row then return refuse(fields) end
local _, _, expires_at, _, _, _, _, request = string.match(fields[4], OPTS)
if request == '0' or not is_readable(address, fields) then return refuse('not_a_request') end

-- count_part: nil, or why there can be no more parts. What is counted goes when the request would have expired.
local function count_part()
  local kept = redis.call('HMGET', parts_kept, 'count', 'bytes')
  if tonumber(kept[1] or 0) >= max_parts or tonumber(kept[2] or 0) + #payload > max_bytes then return 'too_large' end
  if redis.call('XLEN', outbox) >= outbox_max then return 'outbox_full' end
  redis.call('HINCRBY', parts_kept, 'count', 1)
  redis.call('HINCRBY', parts_kept, 'bytes', #payload)
  redis.call('PEXPIRE', parts_kept, math.max(1, tonumber(expires_at) - book.now_ms), 'NX')
end

local why_not = more and count_part()
if why_not then return refuse(why_not) end
local entry = handle(id, priority)
local tenant, _, from, request_id = string.match(fields[2], KEY_PARTS)
book.timed = true
event('replied', entry, row[4], session, more and 'part' or '', held_ms(row), key_of(address, fields))
book.replies = {'reply', table.concat({tenant .. '/' .. from, address, request_id, expires_at, more and 'part' or 'end', request,
  payload}, '\t')}
if not more then
  redis.call('DEL', parts_kept)
  ending('acked', address, entry, row[4], fields, session, '', '', held_ms(row), came_before(id, backlog_end))
  redis.call('XACK', box, GROUP, id)
  redis.call('XDEL', box, id)
  settle_waiting(address, boxes)
  drop_puller(boxes, session)
end
local sent, put = flush()
remember(part, 'replied')
return {sent, put, 'replied', book.logged}
