-- walking: go through streams entry by entry, and no further in one call than Redis has time for.
--
-- Scripts that say `-- Uses shard, walking` have this text put before them, after shard.

local STEP = 10  -- entries read at once: a few large ones too many are soon read
local MOST_ENTRIES, MOST_BYTES = 1000, 1048576  -- of one call
local walked = {entries = 0, bytes = 0}

-- walk: does `visit(stream, lane, id, fields)` to what comes behind an entry of a lane, then to the lanes after it, until
-- visit says false, which leaves the entry for the next call. Returns the lane and the entry to go on behind; 0 at the end.
local function walk(streams, lane, after, visit)
  while lane <= #streams do
    if walked.entries >= MOST_ENTRIES or walked.bytes >= MOST_BYTES then return lane, after end
    local found = redis.call('XRANGE', streams[lane], after == '' and '-' or '(' .. after, '+', 'COUNT', STEP)
    walked.entries = walked.entries + #found
    for _, one in ipairs(found) do
      for n = 2, #one[2], 2 do walked.bytes = walked.bytes + #one[2][n] end
    end
    for _, one in ipairs(found) do
      if not visit(streams[lane], lane, one[1], one[2]) then return lane, after end
      after = one[1]
    end
    if #found < STEP then lane, after = lane + 1, '' end
  end
  return 0, ''
end
