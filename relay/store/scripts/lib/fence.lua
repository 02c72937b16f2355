-- fence: a call that is sent again is carried out once, and one that comes too late is not carried out at all.
--
-- Scripts that say `-- Uses shard, exchanges, fence` have this text put before them, after these. Their own KEYS begin with
--       27 calls  HASH  instance -> the record of its last exchange here; see exchanges
-- and their own values with `exchange, part`.

local calls = KEYS[SHARD_KEYS + 1]
local FENCED_KEYS = SHARD_KEYS + 1
local last  -- the record of the exchange that this call belongs to

-- carried_out: the outcome of this call if it was carried out before, else nil. Raises STALE if it comes too late.
local function carried_out(exchange, part)
  local outcome
  last, outcome = last_exchange(calls, book.instance, book.now_ms, exchange, part)
  return outcome
end

-- remember: keep the outcome of this call for as long as it may be sent again.
local function remember(part, outcome)
  keep_outcome(calls, book.instance, last, part, outcome)
end

-- once: the answer to a call that `carry_out` carries out, if that was not done before: {outbox entry or "", its fields,
-- outcome, its entry in the event log or ""}. What was forwarded the first time is not forwarded again.
local function once(exchange, part, carry_out)
  local before = carried_out(exchange, part)
  if before then return {'', {}, before, ''} end
  local outcome = carry_out()
  local sent, fields = flush()
  remember(part, outcome)
  return {sent, fields, outcome, book.logged}
end
