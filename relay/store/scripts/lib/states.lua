-- states: where a message is, why it is not delivered yet, and until when.
--
-- Scripts that say `-- Uses shard, records, states` have this text put before them, after these. Their own KEYS begin with
--       27 paused  HASH  address or tenant -> by whom, since when, why delivery is paused

local paused = KEYS[SHARD_KEYS + 1]
local STATE_KEYS = SHARD_KEYS + 1
local SESSION = '([^\t\n]+)\t([^\t\n]*)\t?%d*\t?(%d*)'  -- of presence: name, mode, when it asked, its window
local MOST_DUE = 1000  -- of the shard that are looked through for what is delayed

-- pause_of: the pause that keeps a mailbox from being delivered, its own or its tenant's, and which; nil if there is none.
local function pause_of(address)
  local found = redis.call('HMGET', paused, address, tenant_of(address))
  if found[1] then return found[1], 'agent' end
  if found[2] then return found[2], 'tenant' end
end

-- holds_of: how many entries of a mailbox each consumer has, and how many are held, parked and ready.
local function holds_of(boxes)
  local by_consumer, totals = {}, {held = 0, parked = 0, ready = 0}
  for _, box in ipairs(boxes) do
    local summary = in_group('XPENDING', box, GROUP)
    for _, row in ipairs(summary and summary[4] or {}) do
      local count, kind = tonumber(row[2]), row[1] == READY and 'ready' or row[1] == PARKED and 'parked' or 'held'
      by_consumer[row[1]] = (by_consumer[row[1]] or 0) + count
      totals[kind] = totals[kind] + count
    end
  end
  return by_consumer, totals
end

-- why_waiting: why what waits in a mailbox is not taken at this moment.
local function why_waiting(address, sessions, by_consumer)
  if pause_of(address) then return 'paused' end
  local is_served = false
  for session, mode, window in string.gmatch(sessions or '', SESSION) do
    if mode ~= 'sender' and is_alive(session) then
      if window == '' or (by_consumer[session] or 0) < tonumber(window) then return 'next in line' end
      is_served = true
    end
  end
  return is_served and 'window of its session full' or 'nobody connected'
end

-- why_delayed: why an entry must wait, and until when; -1 if nobody knows.
local function why_delayed(address, entry, attempt, not_before)
  local place = '\t' .. address .. '\t' .. entry
  local at = redis.call('ZMSCORE', due, 'bury' .. place, 'park' .. place)
  if at[1] then return 'the dead-letter box is full', tonumber(at[1]) end
  local until_ms = tonumber(at[2]) or tonumber(not_before)
  return attempt > 1 and 'backing off after a nack' or 'delayed by its sender', until_ms > 0 and until_ms or -1
end

-- state_of: an entry's state, attempt, why, until_ms, holder and held since; the times are -1 and the words empty where there
-- are none. Of what is queued, `waits` says why. A record that cannot be read has no `opts`.
local function state_of(address, entry, row, opts, waits)
  local attempt = row and row[4] or 1
  if not opts then return 'delayed', attempt, 'its record cannot be read', -1, '', -1 end
  local not_before = string.match(opts, '^%d+\t%d+\t%d+\t(%d+)')
  local is_parked = row and row[2] == PARKED or not row and tonumber(not_before) > book.now_ms
  if is_parked then
    local why, until_ms = why_delayed(address, entry, attempt, not_before)
    return 'delayed', attempt, why, until_ms, '', -1
  end
  if not row or row[2] == READY then return 'queued', attempt, waits(), -1, '', -1 end
  local until_ms = tonumber(redis.call('ZSCORE', due, 'hold\t' .. address .. '\t' .. entry)) or -1
  local why = string.sub(row[2], 1, 5) == 'http.' and 'held by a lease' or 'held by its session'
  return 'held', attempt, why, until_ms, row[2], book.now_ms - row[3]
end

-- delayed_here: address -> how many of its entries stand in `due` for later, of the first MOST_DUE of the shard.
local function delayed_here()
  local counts = {}
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', due, '(' .. book.now, '+inf', 'LIMIT', 0, MOST_DUE)) do
    local kind, address = string.match(member, '^(%a+)\t([^\t]*)')
    if kind == 'park' or kind == 'bury' then counts[address] = (counts[address] or 0) + 1 end
  end
  return counts
end
