#!lua flags=no-writes
-- thread: how far one direction of a thread has come.
-- Uses shard, records, shadows, walking, numbering
--
-- KEYS  SHARD
--       27+ one STREAM per lane of the recipient's mailbox
-- ARGV  CALL
--         thread key
--         lane index    where to go on; 1 at first
--         after         and behind which stream id; "" for the lane's beginning
--         with_shadows  whether the sender asks, to whom they wait
-- What has a thread stands in an index. What has none is looked for in the mailbox, a page at a time.
-- Returns {last_seq, first number that waits or 0, how many wait, next lane index or 0 at the end, next after}, of this page

local key, lane, after, with_shadows = open()
local MOST_SHADOWS = 2000
local last = tonumber(redis.call('HGET', seqs, key) or redis.call('HGET', seqs_before, key) or before_first(sums))
local pair, thread = string.match(key, '^([^\t]*\t[^\t]*\t[^\t]*)\t(.*)$')
local first, waiting_here = 0, 0

local function count(seq)
  if first == 0 or seq < first then first = seq end
  waiting_here = waiting_here + 1
end

if with_shadows and lane == 1 and after == '' then
  local tenant, recipient = string.match(key, KEY_PARTS)
  for _, shadow in ipairs(shadows_of(tenant .. '/' .. recipient, MOST_SHADOWS)) do
    local opts, its_thread = string.match(shadow, '^[^\n]*\n[^\n]*\n%d+\n([^\n]*)\n[^\n]*\n([^\n]*)$')
    if its_thread == key then count(tonumber((string.match(opts, '^(%d+)')))) end
  end
end
if thread ~= '' then
  local from, to = '[' .. key .. '\t0', '(' .. key .. '\t:'  -- ":" follows the digits
  local in_mailbox = redis.call('ZRANGEBYLEX', threads, from, to, 'LIMIT', 0, 1)[1]
  if in_mailbox then
    count(tonumber(string.match(in_mailbox, '%d+$')))
    waiting_here = waiting_here - 1 + redis.call('ZLEXCOUNT', threads, from, to)
  end
  return {last, first, waiting_here, 0, ''}
end

local tenant, recipient = string.match(key, KEY_PARTS)
lane, after = walk({unpack(KEYS, SHARD_KEYS + 1)}, lane, after, function(_, _, _, fields)
  if not is_readable(tenant .. '/' .. recipient, fields) then return true end
  local its_pair, its_thread = string.match(fields[2], '^([^\t]*\t[^\t]*\t[^\t]*)\t[^\t]*\t[^\t]*\t([^\t]*)\t')
  if its_pair == pair and its_thread == '' then
    count(tonumber((string.match(fields[4], '^(%d+)'))))
  end
  return true
end)
return {last, first, waiting_here, lane, after}
