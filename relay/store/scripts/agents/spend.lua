#!lua flags=allow-oom
-- spend: take tokens from senders' buckets, which fill with time up to their burst. All is in thousandths of a token.
--
-- KEYS  1 rates   HASH  sender -> tokens left in thousandths, at_ms
--       2 limits  HASH  sender -> tokens per second, burst in tokens; only of those with a rate of their own
-- ARGV  1 now_ms, per_s in whole tokens, burst, wants: {sender, least, most, sender, …}
-- Returns per want {granted, ms until `least` is there}: nothing less than `least` is granted, for it would buy nothing

local rates, limits = unpack(KEYS)
local now_ms, per_s, burst, wants = unpack(cmsgpack.unpack(ARGV[1]))
local results = {}
local has_limits = redis.call('EXISTS', limits) == 1

local function rate_of(sender)
  local own = has_limits and redis.call('HGET', limits, sender)
  if not own then return per_s, burst end
  local own_per_s, own_burst = string.match(own, '^(%d+)\t(%d+)$')
  return tonumber(own_per_s), 1000 * tonumber(own_burst)
end

for n = 1, #wants, 3 do
  local sender, least, most = wants[n], wants[n + 1], wants[n + 2]
  local per_s, burst = rate_of(sender)
  local kept = redis.call('HGET', rates, sender)
  local tokens, at_ms = burst, now_ms
  if kept then
    local left, since = string.match(kept, '^(%d+)\t(%d+)$')
    tokens = math.min(burst, tonumber(left) + math.max(0, now_ms - tonumber(since)) * per_s)
    at_ms = math.max(now_ms, tonumber(since))
  end
  local granted = tokens < least and 0 or math.min(most, tokens)
  tokens = tokens - granted
  redis.call('HSET', rates, sender, string.format('%.0f\t%.0f', tokens, at_ms))
  results[#results + 1] = {granted, math.ceil(math.max(0, least - tokens) / per_s)}
end
return results
