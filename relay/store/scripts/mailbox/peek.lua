#!lua flags=no-writes
-- peek: a look into a mailbox that leases nothing.
-- Uses shard, records, walking, states
--
-- KEYS  SHARD
--       27 paused  HASH  see states
--       28+ one STREAM per lane, in the order of `priorities`, which are "9876543210"
-- ARGV  CALL
--         address       whose mailbox it is
--         lane index    where to go on
--         after         and behind which stream id; "" for the lane's beginning
--         limit         how many
--         state         "" or "queued" | "held" | "delayed": only these
--         type          false or only messages of this type
--         sender        false or only messages from this agent, by its bare name
--         with_body     whether bodies are wanted
-- What has expired is not shown. Of a record that cannot be read head, opts and body are empty. A page may be short and still not be the last one: the look itself is bounded.
-- Returns {next lane index or 0 at the end, next after, rows} with rows
--         {handle, "queued" | "held" | "delayed", attempt, why, until_ms or -1, holder or "", held since or -1, head, opts, body or ""}

local address, lane, after, limit, wanted_state, wanted_type, wanted_sender, with_body = open()
local rows, waits = {}, nil
local boxes = {unpack(KEYS, STATE_KEYS + 1)}

-- The same for every message that waits here.
local function why_here()
  waits = waits or why_waiting(address, redis.call('HGET', presence, address), (holds_of(boxes)))
  return waits
end

local function fits(head, state)
  local from, kind = string.match(head, '^[^\t]*\t[^\t]*\t([^\t]*)\t[^\t]*\t([^\t]*)')
  return (wanted_state == '' or wanted_state == state) and (not wanted_type or wanted_type == kind)
    and (not wanted_sender or wanted_sender == from)
end

lane, after = walk(boxes, lane, after, function(box, its_lane, id, fields)
  if #rows == limit then return false end
  if not is_readable(address, fields) then fields = {'head', '', 'opts', nil, 'body', ''} end
  local head, opts = fields[2], fields[4]
  local expires_at = opts and tonumber((string.match(opts, '^%d+\t%d+\t(%d+)'))) or math.huge
  local entry = handle(id, 10 - its_lane)
  local state, attempt, why, until_ms, holder, since = state_of(address, entry, pending(box, id, id, 1)[1], opts, why_here)
  if fits(head, state) and expires_at > book.now_ms then
    rows[#rows + 1] = {entry, state, attempt, why, until_ms, holder, since, head, opts or '', with_body and fields[6] or ''}
  end
  return true
end)
return {lane, after, rows}
