-- numbering: where the sequence numbers of threads and the handles of mailboxes begin.
--
-- Scripts that say `-- Uses numbering` have this text put before them.
-- No number is used twice, also not when the store has gone back in time and does not know which ones were given: each
-- time the numbers of a shard go on at the next multiple of GENERATION, which is more than a thread can have used.

local GENERATION = 1e12

-- before_first: the number before the first one of a thread that is not known. `sums` has how often the shard went back.
local function before_first(sums)
  local regressed = redis.call('HGET', sums, 'regressed')
  return regressed and GENERATION * string.match(regressed, '^%d+') or 0
end

-- first_id: for a stream that is made anew, which must not give a handle again that it gave in the same millisecond.
local function first_id()
  local seconds, micros = unpack(redis.call('TIME'))
  return string.format('%s%03d-%d', seconds, math.floor(micros / 1000), micros % 1000 * 1000)
end

-- add_to: put an entry with these fields into a mailbox. Returns its stream id.
local function add_to(box, ...)
  return redis.call('XADD', box, 'NOMKSTREAM', '*', ...) or redis.call('XADD', box, first_id(), ...)
end
