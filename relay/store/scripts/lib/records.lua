-- records: what the mailboxes hold: whether a record can be read, how it is named, and what is noted when it ends.
--
-- Scripts that say `-- Uses shard, records` have this text put before them, after shard.
-- A record that cannot be read (written by hand, by a program with a fault, or of a version to come) stops nothing: whoever
-- meets it in a mailbox lays it aside, and overdue buries it under the reason UNREADABLE, sealed: head and opts are empty,
-- and the body is all that it was, msgpack.

local UNREADABLE = 'unreadable'
local OF_OPTS = '^(%d+)\t(%d+)\t%d+\t%d+\t%d+\t%d+\t(%d)\t%d\t(%d)'  -- seq, accepted_at, receipt, timed
local HEAD = '^(([^\t]*)\t([^\t]*)\t([^\t]*)\t([^\t]*))\t[^\t]*\t([^\t]*)\t%d\t(%d+)$'  -- key, tenant, to, from, id, thread, bytes
local KEY = '^([^\t]*\t[^\t]*\t[^\t]*\t[^\t]*)'
-- The same with places: where type and thread begin and end, and the size begins; where each number of opts ends.
local WHOLE_HEAD = '^[!-~]+\t[!-~]+\t[!-~]+\t[ -~]+\t()[^\t\n]*\t[^\t\n]*()\t%d\t()%d+$'
local WHOLE_OPTS = '^[1-9]%d*()\t[1-9]%d*()\t[1-9]%d*()\t%d+()\t%d+()\t%d+()\t%d\t%d\t%d\t?[!-~]*$'
local MOST = 16  -- digits of a number and the tab before it: every reader can hold it
local MOST_TABS = 20
local whose = {}  -- address -> how the heads of its messages begin

-- is_utf8: each kind of character is taken out, longer ones first, and no other byte above ASCII may be left.
local function is_utf8(words)
  if not string.find(words, '[\128-\255]') then return true end
  for _, kind in ipairs({'[\240-\244][\128-\191][\128-\191][\128-\191]', '[\224-\239][\128-\191][\128-\191]', '[\194-\223][\128-\191]'}) do
    words = string.gsub(words, kind, function(character)
      -- Spelled longer than need be, half of a surrogate pair, or beyond the last character.
      local is_none = string.find(character, '^\224[\128-\159]') or string.find(character, '^\237[\160-\191]') or
        string.find(character, '^\240[\128-\143]') or string.find(character, '^\244[\144-\191]')
      return is_none and character or ' '
    end)
  end
  return not string.find(words, '[\128-\255]')
end

-- is_readable: whether an entry of an agent's boxes is what accept has put there, as far as scripts and instances read it.
local function is_readable(address, fields)
  local head, opts = fields[2], fields[4]
  if fields[1] ~= 'head' or fields[3] ~= 'opts' or fields[5] ~= 'body' then return false end
  local begins = whose[address]
  if not begins then
    begins = agent_key(address) .. '\t'
    whose[address] = begins
  end
  if string.find(head, begins, 1, true) ~= 1 then return false end
  local type_at, thread_end, size_at = string.match(head, WHOLE_HEAD)
  if not type_at or #head - size_at >= MOST then return false end
  local a, b, c, d, e, f = string.match(opts, WHOLE_OPTS)
  if not a or a > MOST or b - a > MOST or c - b > MOST or d - c > MOST or e - d > MOST or f - e > MOST then return false end
  return thread_end == type_at + 1 or is_utf8(string.sub(head, type_at, thread_end - 1))
end

-- key_of: how events name a message; of one that cannot be read only the agent is known.
local function key_of(address, fields)
  return is_readable(address, fields) and string.match(fields[2], KEY) or agent_key(address)
end

-- accepted_at: when a message came; of one that cannot be read its id says so.
local function accepted_at(address, found)
  local at = is_readable(address, found[2]) and string.match(found[2][4], '^%d+\t(%d+)') or string.match(found[1], '^%d+')
  return tonumber(at)
end

-- sealed: a record that cannot be read, as it is kept in a dead-letter box.
local function sealed(fields)
  return {'head', '', 'opts', '', 'body', cmsgpack.pack(fields)}
end

-- lay_aside: a record that cannot be read waits until overdue buries it, and keeps nobody waiting.
local function lay_aside(address, box, id, entry)
  in_group('XCLAIM', box, GROUP, PARKED, 0, id, 'JUSTID')
  redis.call('ZADD', due, 'NX', book.now, 'bury\t' .. address .. '\t' .. entry)
end

-- known_key: under which key the index has an entry whose head cannot be read, and what its head has behind that; or nil.
-- It may have tabs that nobody has escaped.
local function known_key(address, entry, head)
  local begins, stop = agent_key(address) .. '\t', 0
  if string.sub(head, 1, #begins) ~= begins then return nil end
  for _ = 1, MOST_TABS do
    stop = string.find(head, '\t', stop + 1, true)
    local key = string.sub(head, 1, (stop or 0) - 1)
    if redis.call('HGET', ids, key) == entry then return key, string.sub(head, #key + 1) end
    if not stop then return nil end
  end
end

local function clear_due(address, entry)
  local place = '\t' .. address .. '\t' .. entry
  redis.call('ZREM', due, 'hold' .. place, 'ttl' .. place, 'park' .. place, 'bury' .. place)
end

local function note_end(how, entry, times, key)
  book.ids[#book.ids + 1] = key
  book.ended[#book.ended + 1] = key
  book.ended[#book.ended + 1] = end_record(how, entry, times)
end

local function note_gone(address, tenant, size, key, thread, seq)
  book.bytes[address] = (book.bytes[address] or 0) - size
  tally_mail(tenant, -1, -size)
  if thread == '' or not seq then return end
  book.threads[#book.threads + 1] = in_thread(string.match(key, '^[^\t]*\t[^\t]*\t[^\t]*\t') .. thread, seq)
end

-- end_unreadable: the same as ending, of a record that cannot be read. Only what the index has was ever counted, and only
-- then somebody may wait to hear of it.
local function end_unreadable(how, address, entry, times, fields, who)
  local key, rest = known_key(address, entry, fields[2] or '')
  local pair, from, id = string.match(key or '', '^([^\t]*\t[^\t]*\t([^\t]*))\t([^\t\n]*)$')
  local kind, named = 'set_aside', agent_key(address)
  clear_due(address, entry)
  if how == 'dead' then redis.call('HINCRBY', totals, UNREADABLE, 1) end
  if key then
    local seq, _, receipt = string.match(fields[4] or '', OF_OPTS)
    local thread, size = string.match(rest, '^\t[^\t]*\t([^\t]*)\t%d\t(%d+)$')
    local is_counted = size and #size < 16
    note_end(how, entry, times, key)
    note_gone(address, tenant_of(address), is_counted and tonumber(size) or 0, key, thread or '', seq)
    if id and is_utf8(key) then
      kind, named = how, key
      if how ~= 'acked' then redis.call('HINCRBY', totals, how, 1) end
      if how == 'dead' and receipt ~= '0' then
        note_receipt(tenant_of(address) .. '/' .. from, id, string.match(pair, '\t([^\t]*)'), how, times, false,
          string.match(entry, '^%d+'), '"' .. UNREADABLE .. '"')
      end
    end
  end
  event(kind, entry, times, who, UNREADABLE, '', named)
end

-- ending: note that a message has left its mailbox. `reason` is plain text for the event, `reason_json` for the receipt.
local function ending(how, address, entry, attempt, fields, who, reason, reason_json, held, was_stored)
  local times = text(attempt)
  end_push(address)
  -- Also a first attempt may have failed before: a group that is made anew counts from 1 again.
  if book.any_failed == nil then book.any_failed = redis.call('EXISTS', failures) == 1 end
  if book.any_failed then book.failed[#book.failed + 1] = address .. '\t' .. entry end
  if not is_readable(address, fields) then return end_unreadable(how, address, entry, times, fields, who) end
  local seq, accepted, receipt, timed = string.match(fields[4], OF_OPTS)
  local key, tenant, to, from, id, thread, size = string.match(fields[2], HEAD)
  event(how, entry, times, who, reason, held, key)
  note_end(how, entry, times, key)
  note_gone(address, tenant, tonumber(size), key, thread, seq)
  if timed == '1' or book.timed then clear_due(address, entry) end
  if how ~= 'acked' then redis.call('HINCRBY', totals, how, 1) end
  if receipt == '2' and how ~= 'cancelled' or receipt == '1' and (how == 'acked' or how == 'dead') then
    note_receipt(tenant .. '/' .. from, id, to, how, times, was_stored, accepted, reason_json)
  end
end
