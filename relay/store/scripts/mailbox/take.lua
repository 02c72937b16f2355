#!lua flags=allow-oom
-- take: give sessions what is next in their mailboxes: what was released first, then what is new.
-- Ends what has expired on the way, parks what is not due yet, and lays aside what cannot be read.
-- Uses shard, records, consumers, exchanges, fence
--
-- KEYS  SHARD
--       27 calls  HASH  see fence
--       28+ per mailbox: one STREAM per lane, in the order of its `priorities`, highest first
-- ARGV  CALL
--         exchange, part
--         mailboxes     each {address, priorities, session, room, room_bytes, backlog_end, ack_timeout_ms, known, is_puller, types, credits_max, after}, where
--                       room         how many messages it may be given, and room_bytes about how many bytes, but one at least
--                       backlog_end  "" or the last id of the backlog: nothing newer is given before `drained`
--                       known        false, or the handles that the session knows it holds: what the store thinks it
--                                    holds beyond that was lost on the way and is given again
--                       is_puller    whether it gives way to an exclusive session
--                       types        false, or the only types it wants
--                       credits_max  how many messages may be pushed to it when there is nothing left to take
--                       after        "", or the place where a look for types goes on, from the call before
-- Returns {outbox entry or "", its fields, taken} with taken per mailbox "lanes" if it uses lanes that were not named, "busy",
--         "gone" if the session is not registered any more, or
--         {gone, is_cut, credits, pushed, passed, handle, attempt, head, opts, body, handle, attempt, …}: gone lists the
--         known handles it holds no more, is_cut is 1 if it got less than its room because of the bytes, else 0, or the place
--         where a look for types must go on, for it has read enough, credits are how many messages will be pushed to the
--         session as they come, 0 if it must ask, pushed is where their count starts, and passed is how much it has read of
--         other types, in thousandths of what one look reads

local exchange, part, mailboxes = open()
carried_out(exchange, part)  -- a take is not sent again, but one that comes too late would give mail to nobody
local taken = {}
-- No two rounds of pushes count alike, so that what is late of one is not taken for a part of the next.
local pushed = exchange * 1000000
local call_bytes = 4 * 1024 * 1024  -- what one call gives in all, so that no answer is huge
local READY_AT_ONCE = 16  -- that a look for types lists: it may read no more
local MOST_PASSED = 512 * 1024  -- bytes of other types that one look reads: half a millisecond
local PASSED_BYTES = 4096  -- what one of them counts for beside its body, by the time it takes
local ENTRY_BYTES = 200  -- what an entry counts for beside its body that is given
local addresses = {}
for m, mailbox in ipairs(mailboxes) do addresses[m] = mailbox[1] end
local used = redis.call('HMGET', lanes, unpack(addresses))
local sessions = redis.call('HMGET', presence, unpack(addresses))
local sizes = redis.call('HMGET', bytes, unpack(addresses))

local function serves_alone(lines, session)
  return string.find('\n' .. lines, '\n' .. session .. '\texclusive', 1, true) ~= nil
end

local function is_registered(lines, session)
  return lines and string.find('\n' .. lines, '\n' .. session .. '\t', 1, true) ~= nil
end

-- The own entries of a session that it never got to see go back to the front; what it has lost is said.
local function recover(address, boxes, priorities, session, known)
  local held, gone = {}, {}
  for n, box in ipairs(boxes) do
    local priority = tonumber(string.sub(priorities, n, n))
    for _, row in ipairs(pending(box, '-', '+', 10000, session)) do held[handle(row[1], priority)] = {box, row[1]} end
  end
  for _, entry in ipairs(known) do
    if held[entry] then held[entry] = nil else gone[#gone + 1] = entry end
  end
  -- The take whose answer was lost may still be on its way.
  remember(part, '')
  for entry, at in pairs(held) do
    redis.call('XCLAIM', at[1], GROUP, READY, 0, at[2], 'JUSTID')
    redis.call('ZREM', due, 'hold\t' .. address .. '\t' .. entry)
  end
  return gone
end

local next_key = FENCED_KEYS
for m, mailbox in ipairs(mailboxes) do
  local address, priorities, session, room, room_bytes, backlog_end, ack_timeout_ms, known, is_puller, types,
    credits_max, after = unpack(mailbox)
  local boxes, given, ended_some = {}, {{}, 0, 0, pushed, 0}, false
  for n = 1, #priorities do boxes[n] = KEYS[next_key + n] end
  next_key = next_key + #priorities

  -- put_off: what must not be given yet waits until its time has come, under whoever looks. Says whether it does.
  local function put_off(box, priority, id, opts)
    local not_before = string.match(opts, '^%d+\t%d+\t%d+\t(%d+)')
    if tonumber(not_before) <= book.now_ms then return false end
    redis.call('XCLAIM', box, GROUP, PARKED, 0, id, 'JUSTID')
    -- Its time may have come already by another instance's clock, and nobody else would unpark it.
    redis.call('ZADD', due, not_before, 'park\t' .. address .. '\t' .. handle(id, priority))
    return true
  end

  -- offer: hand one entry to the session, unless it has expired or its time has not come. Says whether it was given.
  local function offer(box, priority, id, fields, attempt)
    local entry = handle(id, priority)
    local expires_at, timed = string.match(fields[4], '^%d+\t%d+\t(%d+)\t%d+\t%d+\t%d+\t%d\t%d\t(%d)')
    local timeout_ms = ack_timeout_ms
    if tonumber(expires_at) <= book.now_ms then
      redis.call('XCLAIM', box, GROUP, READY, 0, id, 'JUSTID')
      expire(address, box, priority, id, fields)
      ended_some = true
      return false
    end
    if timed == '1' then
      if put_off(box, priority, id, fields[4]) then return false end
      local own_timeout_ms = string.match(fields[4], '^%d+\t%d+\t%d+\t%d+\t%d+\t(%d+)')
      if own_timeout_ms ~= '0' then timeout_ms = tonumber(own_timeout_ms) end
    end
    if timeout_ms > 0 then
      redis.call('ZADD', due, book.now_ms + timeout_ms, 'hold\t' .. address .. '\t' .. entry)
    end
    -- Of a first attempt whatever ends it tells when it was taken: most messages need no event of their delivery.
    if attempt > 1 then event('taken', entry, text(attempt), session, '', '', key_of(address, fields)) end
    given[#given + 1] = entry
    given[#given + 1] = attempt
    given[#given + 1] = fields[2]
    given[#given + 1] = fields[4]
    given[#given + 1] = fields[6]
    room = room - 1
    room_bytes = room_bytes - #fields[6] - ENTRY_BYTES
    call_bytes = call_bytes - #fields[6] - ENTRY_BYTES
    if room > 0 and (room_bytes <= 0 or call_bytes <= 0) then given[2], room = 1, 0 end
    return true
  end

  local wanted_types = {}
  for _, kind in ipairs(types or {}) do wanted_types[kind] = true end
  local function is_wanted(fields)
    return not types or wanted_types[string.match(fields[2], '^[^\t]*\t[^\t]*\t[^\t]*\t[^\t]*\t([^\t]*)')]
  end

  -- pass_over: an entry of another type was read. When there were enough of them the look goes on in the next call.
  local passed = 0
  local function pass_over(priority, found)
    passed = passed + #found[2][6] + PASSED_BYTES
    given[5] = math.min(1000, math.ceil(1000 * passed / MOST_PASSED))
    if passed >= MOST_PASSED and room > 0 then given[2], room = priority .. ' ' .. found[1], 0 end
  end

  local function take_released(box, priority, from)
    while room > 0 do
      local rows = pending(box, from, backlog_end == '' and '+' or backlog_end, types and READY_AT_ONCE or room, READY)
      if #rows == 0 then return end
      for _, row in ipairs(rows) do
        if room == 0 then return end
        local id, attempt = row[1], row[4]
        local found = redis.call('XRANGE', box, id, id)[1]
        if not found then
          redis.call('XACK', box, GROUP, id)
        elseif not is_readable(address, found[2]) then
          lay_aside(address, box, id, handle(id, priority))
        elseif is_wanted(found[2]) then
          redis.call('XCLAIM', box, GROUP, session, 0, id, 'JUSTID')
          offer(box, priority, id, found[2], attempt)
        else
          pass_over(priority, found)
        end
        from = '(' .. id
      end
    end
  end

  -- put_back: what was read and is not given now stays in its place: what is ready comes before what is new.
  local function put_back(box, priority, found)
    if put_off(box, priority, found[1], found[2][4]) then return end
    redis.call('XCLAIM', box, GROUP, READY, 0, found[1], 'JUSTID')
  end

  local function take_new(box, priority, mean)
    local has_read = false
    while room > 0 do
      local count = math.min(room, math.ceil(math.min(room_bytes, call_bytes) / mean))
      local reply = in_group('XREADGROUP', 'GROUP', GROUP, session, 'COUNT', count, 'STREAMS', box, '>')
      if reply == nil then
        make_group(box)
        reply = redis.call('XREADGROUP', 'GROUP', GROUP, session, 'COUNT', count, 'STREAMS', box, '>')
      end
      if not reply then
        -- Replicas do not hear of a consumer that reads nothing. After two failovers it would be there again for ever.
        if not has_read then drop_idle(box, session) end
        return
      end
      has_read = true
      local past_backlog = false
      for _, found in ipairs(reply[1][2]) do
        if not is_readable(address, found[2]) then
          lay_aside(address, box, found[1], handle(found[1], priority))
        elseif past_backlog or backlog_end ~= '' and not came_before(found[1], backlog_end) then
          -- Read too far: it waits at the front of the line until the backlog of every lane is through.
          past_backlog = true
          put_back(box, priority, found)
        elseif room == 0 then
          -- Read too much: it is the next to be given.
          put_back(box, priority, found)
        elseif not is_wanted(found[2]) then
          put_back(box, priority, found)
          pass_over(priority, found)
        else
          offer(box, priority, found[1], found[2], 1)
        end
      end
      if past_backlog then return end
    end
  end

  if used[m] and priorities ~= ALL_LANES then
    given, room = 'lanes', 0
  elseif is_puller and served_exclusively(sessions[m]) then
    given, room = 'busy', 0
  elseif known then
    given[1] = recover(address, boxes, priorities, session, known)
  end
  end_push(address)
  -- A session that does not know yet that it was replaced, or given up for dead, gets nothing more: what it took now
  -- nobody would release.
  if not is_puller and not is_registered(sessions[m], session) then given, room = 'gone', 0 end
  if room > 0 and call_bytes <= 0 then given[2], room = 1, 0 end
  local after_priority, after_id = string.match(after, '^(%d) (.+)$')
  after_priority = tonumber(after_priority) or 9
  for n, box in ipairs(boxes) do
    local priority = tonumber(string.sub(priorities, n, n))
    local depth = room > 0 and priority <= after_priority and redis.call('XLEN', box) or 0
    if depth > 0 then
      take_released(box, priority, after_id and priority == after_priority and '(' .. after_id or '-')
      take_new(box, priority, tonumber(sizes[m] or 0) / depth + ENTRY_BYTES)
    end
  end
  if ended_some then settle_waiting(address, boxes) end
  -- Everything is taken that was there, so what comes next may go straight to whom it will belong.
  local credits = type(given) == 'table' and room > 0 and credits_max - (#given - 5) / 5 or 0
  if credits > 0 and priorities == '0' and serves_alone(sessions[m], session) then
    redis.call('HSET', pushes, address, session .. '\t' .. text(credits) .. '\t' .. text(pushed))
    given[3] = credits
  end
  if is_puller then drop_puller(boxes, session) end
  taken[m] = given
end

local sent, fields = flush()
return {sent, fields, taken}
