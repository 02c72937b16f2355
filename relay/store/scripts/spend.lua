-- spend: take tokens from senders' buckets, which fill with time up to their burst.
--
-- KEYS  1 rates  HASH  sender -> tokens left in thousandths, at_ms
-- ARGV  1 now_ms, per_s, burst, wants: {sender, most, sender, …}
-- Returns per want {granted, ms until one token is there}

local rates = KEYS[1]
local now_ms, per_s, burst, wants = unpack(cmsgpack.unpack(ARGV[1]))
local results = {}
for n = 1, #wants, 2 do
  local sender, most = wants[n], wants[n + 1]
  local kept = redis.call('HGET', rates, sender)
  local tokens, at_ms = burst * 1000, now_ms
  if kept then
    local left, since = string.match(kept, '^(%d+)\t(%d+)$')
    tokens = math.min(burst * 1000, tonumber(left) + math.max(0, now_ms - tonumber(since)) * per_s)
    at_ms = math.max(now_ms, tonumber(since))
  end
  local whole = math.floor(tokens / 1000)
  local granted = math.min(most, whole)
  tokens = tokens - granted * 1000
  redis.call('HSET', rates, sender, string.format('%.0f\t%.0f', tokens, at_ms))
  results[#results + 1] = {granted, math.ceil(math.max(0, 1000 - tokens) / per_s)}
end
return results
