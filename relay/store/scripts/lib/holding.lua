-- holding: who holds an entry, and what the holder may do to it.
--
-- Scripts that say `-- Uses shard, records, holding` have this text put before them, after these.

-- held: the pending row and the fields of an entry that this session holds (in this attempt, if one is named);
-- else nil and "lock_lost" | "not_found".
local function held(box, id, session, attempt)
  local row = pending(box, id, id, 1, session)[1]
  local found = redis.call('XRANGE', box, id, id)[1]
  if not found then return nil, 'not_found' end
  if not row or attempt ~= 0 and attempt ~= row[4] then return nil, 'lock_lost' end
  return row, found[2]
end

-- settle_each: does `settle(box, priority, entry, row, fields)` to the entries of one mailbox that this session holds, with an
-- event of this kind before it; the others go into `refused`, as {mailbox index, handle, why, …}.
local function settle_each(m, address, boxes, priorities, session, entries, refused, kind, reason, settle)
  for n = 1, #entries, 3 do
    local lane, id, attempt = entries[n], entries[n + 1], entries[n + 2]
    local box, priority = boxes[lane], tonumber(string.sub(priorities, lane, lane))
    local row, fields = held(box, id, session, attempt)
    local entry = handle(id, priority)
    if row then
      event(kind, entry, row[4], session, reason, held_ms(row), key_of(address, fields))
      settle(box, priority, entry, row, fields)
    else
      refused[#refused + 1] = m
      refused[#refused + 1] = entry
      refused[#refused + 1] = fields
    end
  end
end
