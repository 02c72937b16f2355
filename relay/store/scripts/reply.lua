-- reply: answer a request that this session holds. The last answer also acks it; a part does not.
-- Uses shard, holding
--
-- KEYS  SHARD
--       21+ one STREAM per lane, in the order of `priorities`
-- ARGV  1 now_ms, instance, events_max, ended_ms, publish, wake_prefix,
--         address, priorities, session, began,
--         lane index, stream id, attempt or 0 for any,
--         more          whether this is a part
--         payload       JSON
-- Returns {outbox entry or "", its fields, "replied" | "lock_lost" | "not_found" | "not_a_request"}

local address, priorities, session, began, lane, id, attempt, more, payload = open()
local boxes = {unpack(KEYS, SHARD_KEYS + 1, SHARD_KEYS + #priorities)}
local box, priority = boxes[lane], tonumber(string.sub(priorities, lane, lane))
local row, fields = held(box, id, session, attempt)
if not row then return {'', {}, fields} end
local seq, accepted_at, expires_at, _, _, _, _, request = string.match(fields[4], OPTS)
if request == '0' then return {'', {}, 'not_a_request'} end

local entry = handle(id, priority)
local tenant, _, from, request_id = string.match(fields[2], KEY_PARTS)
book.timed = true
event('replied', entry, seq, row[4], session, more and 'part' or '', accepted_at, text(book.now_ms - row[3]), fields[2])
book.replies = {'reply', table.concat({tenant .. '/' .. from, address, request_id, expires_at, more and 'part' or 'end', request,
  payload}, '\t')}
if not more then
  ending('acked', entry, row[4], fields, session, '', '', text(book.now_ms - row[3]), came_before(id, began))
  redis.call('XACK', box, GROUP, id)
  redis.call('XDEL', box, id)
  settle_waiting(address, boxes)
  drop_puller(boxes, session)
end
local sent, put = flush()
return {sent, put, 'replied'}
