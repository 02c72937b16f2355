-- take: give sessions what is next in their mailboxes: what was released first, then what is new.
-- Ends what has expired on the way, and parks what is not due yet.
-- Uses shard
--
-- KEYS  SHARD
--       21+ per mailbox: one STREAM per lane, in the order of its `priorities`, highest first
-- ARGV  1 now_ms, instance, events_max, ended_ms, publish, wake_prefix,
--         mailboxes     each {address, priorities, session, room, began, ack_timeout_ms, known, is_puller, types}, where
--                       began      "" or the last id of the backlog: nothing newer is given before `drained`
--                       known      false, or the handles that the session knows it holds: what the store thinks it
--                                  holds beyond that was lost on the way and is given again
--                       is_puller  whether it gives way to an exclusive session
--                       types      false, or the only types it wants
-- Returns {outbox entry or "", its fields, taken} with taken per mailbox "lanes" if it uses lanes that were not named, "busy",
--         "gone" if the session is not registered any more, or
--         {gone, handle, attempt, seq, body, handle, attempt, …}: gone lists the known handles it holds no more

local mailboxes = open()
local taken = {}
local addresses = {}
for m, mailbox in ipairs(mailboxes) do addresses[m] = mailbox[1] end
local used = redis.call('HMGET', lanes, unpack(addresses))
local sessions = redis.call('HMGET', presence, unpack(addresses))

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
  for entry, at in pairs(held) do
    redis.call('XCLAIM', at[1], GROUP, READY, 0, at[2], 'JUSTID')
    redis.call('ZREM', due, 'hold\t' .. address .. '\t' .. entry)
  end
  return gone
end

local next_key = SHARD_KEYS
for m, mailbox in ipairs(mailboxes) do
  local address, priorities, session, room, began, ack_timeout_ms, known, is_puller, types = unpack(mailbox)
  local boxes, given, ended_some = {}, {{}}, false
  for n = 1, #priorities do boxes[n] = KEYS[next_key + n] end
  next_key = next_key + #priorities

  -- offer: hand one entry to the session, unless it has expired or its time has not come. Says whether it was given.
  local function offer(box, priority, id, fields, attempt)
    local entry = handle(id, priority)
    local seq, accepted_at, expires_at, timed = string.match(fields[4], '^(%d+)\t(%d+)\t(%d+)\t.*(%d)$')
    local timeout_ms = ack_timeout_ms
    if tonumber(expires_at) <= book.now_ms then
      redis.call('XCLAIM', box, GROUP, READY, 0, id, 'JUSTID')
      expire(address, box, priority, id, fields)
      ended_some = true
      return false
    end
    if timed == '1' then
      local _, _, _, not_before, _, own_timeout_ms = string.match(fields[4], OPTS)
      if tonumber(not_before) > book.now_ms then
        redis.call('XCLAIM', box, GROUP, PARKED, 0, id, 'JUSTID')
        -- Its time may have come already by another instance's clock, and nobody else would unpark it.
        redis.call('ZADD', due, not_before, 'park\t' .. address .. '\t' .. entry)
        return false
      end
      if own_timeout_ms ~= '0' then timeout_ms = tonumber(own_timeout_ms) end
    end
    if timeout_ms > 0 then
      redis.call('ZADD', due, book.now_ms + timeout_ms, 'hold\t' .. address .. '\t' .. entry)
    end
    event('taken', entry, seq, text(attempt), session, '', accepted_at, book.now, fields[2])
    given[#given + 1] = entry
    given[#given + 1] = attempt
    given[#given + 1] = tonumber(seq)
    given[#given + 1] = fields[6]
    room = room - 1
    return true
  end

  local wanted_types = {}
  for _, kind in ipairs(types or {}) do wanted_types[kind] = true end
  local function is_wanted(fields)
    return not types or wanted_types[string.match(fields[2], '^[^\t]*\t[^\t]*\t[^\t]*\t[^\t]*\t([^\t]*)')]
  end

  local function take_released(box, priority)
    local from = '-'
    while room > 0 do
      local rows = pending(box, from, began == '' and '+' or began, types and 100 or room, READY)
      if #rows == 0 then return end
      for _, row in ipairs(rows) do
        local id, attempt = row[1], row[4]
        local found = redis.call('XRANGE', box, id, id)[1]
        if not found then
          redis.call('XACK', box, GROUP, id)
        elseif room > 0 and is_wanted(found[2]) then
          redis.call('XCLAIM', box, GROUP, session, 0, id, 'JUSTID')
          offer(box, priority, id, found[2], attempt)
        end
        from = '(' .. id
      end
    end
  end

  local function take_new(box, priority)
    while room > 0 do
      local reply = in_group('XREADGROUP', 'GROUP', GROUP, session, 'COUNT', room, 'STREAMS', box, '>')
      if reply == nil then
        make_group(box)
        reply = redis.call('XREADGROUP', 'GROUP', GROUP, session, 'COUNT', room, 'STREAMS', box, '>')
      end
      if not reply then return end
      local past_backlog = false
      for _, found in ipairs(reply[1][2]) do
        if past_backlog or began ~= '' and not came_before(found[1], began) then
          -- Read too far: it waits at the front of the line until the backlog of every lane is through.
          past_backlog = true
          redis.call('XCLAIM', box, GROUP, READY, 0, found[1], 'JUSTID')
        elseif not is_wanted(found[2]) then
          -- Left for somebody else, in its place: what is ready comes before what is new.
          redis.call('XCLAIM', box, GROUP, READY, 0, found[1], 'JUSTID')
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
  -- A session that does not know yet that it was replaced, or given up for dead, gets nothing more: what it took now
  -- nobody would release.
  if not is_puller and not is_registered(sessions[m], session) then given, room = 'gone', 0 end
  for n, box in ipairs(boxes) do
    if room > 0 and redis.call('XLEN', box) > 0 then
      local priority = tonumber(string.sub(priorities, n, n))
      take_released(box, priority)
      take_new(box, priority)
    end
  end
  if ended_some then settle_waiting(address, boxes) end
  if is_puller then drop_puller(boxes, session) end
  taken[m] = given
end

local sent, fields = flush()
return {sent, fields, taken}
