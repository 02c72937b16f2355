-- exchanges: the memory of what an instance has called for in its last exchange.
--
-- Scripts that say `-- Uses exchanges` have this text put before them.
-- An instance has one exchange under way at a time, and what was not answered is sent again under the same number: so
-- only its last exchange can come twice, and whatever is older comes too late. The parts of an exchange are its calls
-- in this shard. A record is {exchange, at_ms, part, outcome, part, outcome, …}, msgpack.

-- last_exchange: the record of this exchange, and the outcome of this part if it was carried out before, else nil.
-- Raises STALE if it comes too late.
local function last_exchange(calls, instance, now_ms, exchange, part)
  local packed = redis.call('HGET', calls, instance)
  local record = packed and cmsgpack.unpack(packed) or {0, 0}
  if record[1] > exchange then error({err = 'STALE a later exchange of this instance has been here'}) end
  if record[1] < exchange then record = {exchange, now_ms} end
  for n = 3, #record, 2 do
    if record[n] == part then return record, record[n + 1] end
  end
  return record
end

-- keep_outcome: for as long as the call may be sent again.
local function keep_outcome(calls, instance, record, part, outcome)
  record[#record + 1] = part
  record[#record + 1] = outcome
  redis.call('HSET', calls, instance, cmsgpack.pack(record))
end
