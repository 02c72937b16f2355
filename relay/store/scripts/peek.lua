-- peek: a look into a mailbox that leases nothing.
-- Uses shard
--
-- KEYS  SHARD
--       21+ one STREAM per lane, in the order of `priorities`, which are "9876543210"
-- ARGV  1 now_ms, instance, events_max, ended_ms, publish, wake_prefix,
--         lane index    where to go on
--         after         and behind which stream id; "" for the lane's beginning
--         limit         how many
--         state         "" or "queued" | "held" | "delayed": only these
--         type          false or only messages of this type
-- What has expired is not shown. A page may be short and still not be the last one: the look itself is bounded.
-- Returns {next lane index or 0 at the end, next after, rows} with rows
--         {handle, "queued" | "held" | "delayed", attempt, holder or "", head, opts, body}

local lane, after, limit, wanted_state, wanted_type = open()
local LOOK, MOST_LOOKED_AT, MOST_BYTES = 100, 2000, 4194304
local rows, looked_at, size = {}, 0, 0

local function state_of(row, opts)
  if row then
    if row[2] == READY then return 'queued', row[4], '' end
    if row[2] == PARKED then return 'delayed', row[4], '' end
    return 'held', row[4], row[2]
  end
  local not_before = string.match(opts, '^%d+\t%d+\t%d+\t(%d+)')
  return tonumber(not_before) > book.now_ms and 'delayed' or 'queued', 1, ''
end

while lane <= #KEYS - SHARD_KEYS do
  local box = KEYS[SHARD_KEYS + lane]
  local found = redis.call('XRANGE', box, after == '' and '-' or '(' .. after, '+', 'COUNT', LOOK)
  for _, one in ipairs(found) do
    if #rows == limit or looked_at == MOST_LOOKED_AT or size > MOST_BYTES then return {lane, after, rows} end
    after, looked_at = one[1], looked_at + 1
    local fields = one[2]
    local expires_at = tonumber((string.match(fields[4], '^%d+\t%d+\t(%d+)')))
    local state, attempt, holder = state_of(pending(box, one[1], one[1], 1)[1], fields[4])
    local kind = string.match(fields[2], '^[^\t]*\t[^\t]*\t[^\t]*\t[^\t]*\t([^\t]*)')
    local fits = (wanted_state == '' or wanted_state == state) and (not wanted_type or wanted_type == kind)
    if fits and expires_at > book.now_ms then
      size = size + #fields[6]
      rows[#rows + 1] = {handle(one[1], 10 - lane), state, attempt, holder, fields[2], fields[4], fields[6]}
    end
  end
  if #found < LOOK then lane, after = lane + 1, '' end
end
return {0, '', rows}
