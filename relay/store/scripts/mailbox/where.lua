#!lua flags=no-writes
-- where: where a message is, and how it ended if it did.
-- Uses shard, records, shadows, states
--
-- KEYS  SHARD
--       27 paused  HASH  see states
--       28+ one STREAM per lane, in the order of `priorities`, which are "9876543210"
-- ARGV  CALL
--         message key
-- Returns {"queued" | "held" | "delayed", entry, attempt, accepted_at, why, until_ms or -1, holder or "", held since or -1,
--         max_attempts or 0}
--         | {"acked" | "dead" | "expired" | "cancelled", entry, attempt, at_ms} | {"unknown"}

local key = open()
local entry = redis.call('HGET', ids, key)
if not entry then
  local record = redis.call('HGET', ended, key) or redis.call('HGET', ended_before, key)
  if not record then return {'unknown'} end
  local how, at_ms, its_entry, attempt = parse_end(record)
  return {how, its_entry, attempt, at_ms}
end

local boxes = {unpack(KEYS, STATE_KEYS + 1)}
local function in_mailbox()
  local id, priority = string.match(entry, '^(%d+%-%d+)p?(%d?)$')
  local box = boxes[10 - (tonumber(priority) or 0)]
  local found = redis.call('XRANGE', box, id, id)[1]
  return found and found[2], pending(box, id, id, 1)[1], id
end

local function in_shadow()
  local shadow = shadow_of(key, entry)
  return shadow and string.match(shadow, '^[^\n]*\n[^\n]*\n%d+\n([^\n]*)')
end

local hidden, opts, fields, row, id = unmarked(entry), nil, nil, nil, nil
entry = hidden or entry
if hidden then opts = in_shadow() else fields, row, id = in_mailbox() end
if not opts and not fields then return {'unknown'} end
local tenant, to = string.match(key, KEY_PARTS)
local address = tenant .. '/' .. to
if fields and not is_readable(address, fields) then
  local state, attempt, why = state_of(address, entry, row, nil)
  return {state, entry, attempt, accepted_at(address, {id, fields}), why, -1, '', -1, 0}
end
opts = opts or fields[4]
local _, came_at, expires_at, _, max_attempts = string.match(opts, OPTS)
if tonumber(expires_at) <= book.now_ms then return {'expired', entry, row and row[4] or 0, tonumber(expires_at)} end
local state, attempt, why, until_ms, holder, since = state_of(address, entry, row, opts, function()
  return why_waiting(address, redis.call('HGET', presence, address), (holds_of(boxes)))
end)
return {state, entry, attempt, tonumber(came_at), why, until_ms, holder, since, tonumber(max_attempts)}
