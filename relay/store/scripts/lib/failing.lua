-- failing: what happens to a message after a failed attempt: another one later, or the dead-letter box.
--
-- Scripts that say `-- Uses shard, records, … failing` have this text put before them, after these.

local FIRST_DELAY_MS, LONGEST_DELAY_MS, FULL_DELAY_MS = 10000, 600000, 60000
local HISTORY_BYTES = 16384  -- of a message that fails without end the latest failures are kept

local function remember_failure(address, entry, attempt, who, reason)
  local place = address .. '\t' .. entry
  local before = redis.call('HGET', failures, place)
  if before and #before > HISTORY_BYTES then before = string.match(string.sub(before, -HISTORY_BYTES), '\n(.*)$') end
  local line = text(attempt) .. book.at .. who .. '\t' .. reason
  book.any_failed = true
  redis.call('HSET', failures, place, before and before .. '\n' .. line or line)
end

local function park(address, box, id, entry, attempt, kind, delay_ms)
  redis.call('XCLAIM', box, GROUP, PARKED, 0, id, 'RETRYCOUNT', attempt, 'JUSTID')
  redis.call('ZADD', due, book.now_ms + delay_ms, kind .. '\t' .. address .. '\t' .. entry)
end

-- bury: move a message to the dead-letter box, sealed if it cannot be read. When that is full it stays in its mailbox,
-- parked, and is tried again later. Says which: "dead" | "parked".
local function bury(address, box, dead, dead_max, id, priority, attempt, fields, who, reason, reason_json, held, was_stored)
  local entry = handle(id, priority)
  if redis.call('XLEN', dead) >= dead_max then
    park(address, box, id, entry, attempt, 'bury', FULL_DELAY_MS)
    return 'parked'
  end
  local kept = fields
  if not is_readable(address, fields) then kept, reason = sealed(fields), UNREADABLE end
  local history = redis.call('HGET', failures, address .. '\t' .. entry) or ''
  redis.call('XADD', dead, '*', 'head', kept[2], 'opts', kept[4], 'body', kept[6], 'entry', entry,
    'attempts', attempt, 'at_ms', book.now_ms, 'reason', reason, 'history', history)
  redis.call('XACK', box, GROUP, id)
  redis.call('XDEL', box, id)
  tally(tenant_of(address), 'dead', 1)
  ending('dead', address, entry, attempt, fields, who, reason, reason_json, held, was_stored)
  return 'dead'
end

-- fail: count a failed attempt. Says what became of the message: "dead" | "parked" | "ready".
local function fail(address, box, dead, dead_max, row, priority, fields, who, reason, reason_json, retry, delay_ms, was_stored)
  local id, attempt, entry = row[1], row[4], handle(row[1], priority)
  local max_attempts = is_readable(address, fields) and tonumber((string.match(fields[4], '^%d+\t%d+\t%d+\t%d+\t(%d+)')))
  end_push(address)
  -- A delay that was over before any worker came would unpark what is parked from now on.
  redis.call('ZREM', due, 'hold\t' .. address .. '\t' .. entry, 'park\t' .. address .. '\t' .. entry)
  remember_failure(address, entry, attempt, who, reason)
  if not retry or not max_attempts or max_attempts > 0 and attempt >= max_attempts then
    return bury(address, box, dead, dead_max, id, priority, attempt, fields, who, reason, reason_json,
      held_ms(row), was_stored)
  end
  if delay_ms < 0 then delay_ms = math.min(LONGEST_DELAY_MS, FIRST_DELAY_MS * 2 ^ math.min(attempt - 1, 16)) end
  if delay_ms > 0 then
    park(address, box, id, entry, attempt + 1, 'park', delay_ms)
    return 'parked'
  end
  redis.call('XCLAIM', box, GROUP, READY, 0, id, 'RETRYCOUNT', attempt + 1, 'JUSTID')
  return 'ready'
end
