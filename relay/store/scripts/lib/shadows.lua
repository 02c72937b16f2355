-- shadows: messages of blocked senders, as far as their senders see them: they wait, and nobody ever gets them.
--
-- Scripts that say `-- Uses shard, shadows` have this text put before them, after shard.
-- In `ids` the handle of a shadow ends with "~". In `shadows` it is one member,
-- `address \n handle \n bytes \n opts \n message key \n thread key`: all that there is, for the payload is not kept.

local SHADOW = '^([^\n]*)\n([^\n]*)\n(%d+)\n([^\n]*)\n([^\n]*)\n([^\n]*)$'
local casts = {}  -- address -> the millisecond and number of the last one that was cast in this call
local called_at  -- the server's time, which stands still in a call for handles of mailboxes too (from Redis 7.2 on)

-- lists: whether a sender is among the blocked ones of an agent.
local function lists(blocked, sender)
  return blocked and string.find('\n' .. blocked .. '\n', '\n' .. sender .. '\n', 1, true) ~= nil
end

-- unmarked: the handle of a shadow, from `ids`; nil if the message is in its mailbox.
local function unmarked(known)
  return string.match(known, '^(.*)~$')
end

-- shadows_of: the shadows of an address, or of one entry of it, at most so many.
local function shadows_of(prefix, limit)
  return redis.call('ZRANGEBYLEX', shadows, '[' .. prefix .. '\n', '(' .. prefix .. '\v', 'LIMIT', 0, limit)
end

local function shadow_of(key, entry)
  local tenant, to = string.match(key, KEY_PARTS)
  return shadows_of(tenant .. '/' .. to .. '\n' .. entry, 1)[1]
end

-- shadow_size: how many shadows an address has, and the bytes of their payloads.
local function shadow_size(address)
  local count, size = string.match(redis.call('HGET', shadowed, address) or '0\t0', '^(%d+)\t(%d+)$')
  return tonumber(count), tonumber(size)
end

local function resize(address, messages, size)
  local count, size_before = shadow_size(address)
  if count + messages == 0 then
    redis.call('HDEL', shadowed, address)
  else
    redis.call('HSET', shadowed, address, text(count + messages) .. '\t' .. text(size_before + size))
  end
end

-- A handle as a mailbox would have given it: the server's time, and a number that starts at 0, or in one that would
-- have to be made at the microsecond; see add_to in numbering.
local function new_handle(address, priority, is_first)
  called_at = called_at or redis.call('TIME')
  local seconds, us = called_at[1], tonumber(called_at[2])
  local ms, n = seconds .. string.format('%03d', math.floor(us / 1000)), is_first and us % 1000 * 1000 or 0
  if casts[address] and casts[address][1] == ms then n = casts[address][2] + 1 end
  while #shadows_of(address .. '\n' .. handle(ms .. '-' .. n, priority), 1) > 0 do n = n + 1 end
  casts[address] = {ms, n}
  return handle(ms .. '-' .. n, priority)
end

-- cast: keep a shadow instead of a message, which would have been the first of its mailbox or not. Returns its handle.
local function cast(address, priority, key, thread, opts, size, is_first)
  local entry = new_handle(address, priority, is_first)
  local expires_at = string.match(opts, '^%d+\t%d+\t(%d+)')
  redis.call('ZADD', shadows, 0, table.concat({address, entry, size, opts, key, thread}, '\n'))
  redis.call('ZADD', due, expires_at, 'shadow\t' .. address .. '\t' .. entry)
  resize(address, 1, size)
  return entry
end

-- dispel: end a shadow as its message would have ended, for its sender alone.
local function dispel(how, shadow)
  local address, entry, size, opts, key = string.match(shadow, SHADOW)
  local tenant, to, from, id = string.match(key, KEY_PARTS)
  local _, accepted_at, _, _, _, _, receipt = string.match(opts, OPTS)
  redis.call('ZREM', shadows, shadow)
  redis.call('ZREM', due, 'shadow\t' .. address .. '\t' .. entry)
  resize(address, -1, -tonumber(size))
  book.ids[#book.ids + 1] = key
  book.ended[#book.ended + 1] = key
  book.ended[#book.ended + 1] = end_record(how, entry, '0')
  if receipt == '2' and how == 'expired' then
    note_receipt(tenant .. '/' .. from, id, to, how, '0', false, accepted_at, '')
  end
end
