-- consumers: entries that lose the consumer who has them, be it a session that ends or a time that is over.
--
-- Scripts that say `-- Uses shard, records, consumers` have this text put before them, after these.

local PULLER = 'http.'  -- how the consumers of pullers begin

-- release_all: what a session held goes back to the front of the line, uncounted. Returns how many.
local function release_all(address, box, priority, session, reason)
  end_push(address)
  local rows = in_group('XPENDING', box, GROUP, '-', '+', 10000, session)
  if not rows then return 0 end
  for _, row in ipairs(rows) do
    local found = redis.call('XRANGE', box, row[1], row[1])[1]
    if found then
      local entry = handle(row[1], priority)
      redis.call('XCLAIM', box, GROUP, READY, 0, row[1], 'JUSTID')
      redis.call('ZREM', due, 'hold\t' .. address .. '\t' .. entry)
      event('released', entry, row[4], session, reason, held_ms(row), key_of(address, found[2]))
    else
      redis.call('XACK', box, GROUP, row[1])
    end
  end
  -- Only now: a consumer that is deleted takes its pending entries with it.
  redis.call('XGROUP', 'DELCONSUMER', box, GROUP, session)
  return #rows
end

local function is_puller(session)
  return string.sub(session, 1, #PULLER) == PULLER
end

-- drop_idle: a consumer that holds nothing is deleted.
local function drop_idle(box, consumer)
  local rows = in_group('XPENDING', box, GROUP, '-', '+', 1, consumer)
  if rows and #rows == 0 then redis.call('XGROUP', 'DELCONSUMER', box, GROUP, consumer) end
end

-- drop_puller: the consumer of a puller that holds nothing any more is deleted, for it has no session whose end would.
local function drop_puller(boxes, session)
  if not is_puller(session) then return end
  for _, box in ipairs(boxes) do drop_idle(box, session) end
end

-- expire: end an entry whose time is over, wherever it is.
local function expire(address, box, priority, id, fields)
  local row = pending(box, id, id, 1)[1]
  local is_held = row and row[2] ~= READY and row[2] ~= PARKED
  redis.call('XACK', box, GROUP, id)
  redis.call('XDEL', box, id)
  ending('expired', address, handle(id, priority), row and row[4] or 0, fields, is_held and row[2] or '', '', '',
    is_held and held_ms(row) or '', false)
  if is_held then
    drop_puller({box}, row[2])
    tell(row[2], 'lost\t' .. row[2] .. '\t' .. handle(id, priority))
  end
end
