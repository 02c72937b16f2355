#!lua flags=allow-oom
-- regress: say in the store that it has gone back in time, once. Its threads go on with numbers that were never used.
--
-- KEYS  1 events       STREAM  every transition
--       2 seqs         HASH    thread key -> last sequence number; the current bucket
--       3 seqs_before  HASH    the same, the bucket before
--       4 sums         HASH    `regressed` -> how often the shard went back, the entry that says so, the last that was kept
-- ARGV  1 now_ms, 2 instance, 3 events_max, 4 how often the shard went back as far as the instance knows, and then the entries that the instance knows of, oldest first …
-- Returns {how often the shard went back, the last entry that was kept, the first that is lost, how many of those are}

local events, seqs, seqs_before, sums = unpack(KEYS)
local now_ms, instance, events_max, known_times = unpack(ARGV)
local OLDEST, NEWEST = 5, #ARGV

local function order(id)
  local ms, n = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(n)
end

local function is_before(id, other)
  local ms, n = order(id)
  local other_ms, other_n = order(other)
  return ms < other_ms or (ms == other_ms and n < other_n)
end

local function newest_until(id)
  local row = redis.call('XREVRANGE', events, id, '-', 'COUNT', 1)[1]
  return row and row[1] or '0-0'
end

-- next_id: behind everything that was written, whatever the time is here.
local function next_id(known)
  local seconds, micros = unpack(redis.call('TIME'))
  local ms = order(known)
  local is_behind = seconds * 1000 + math.floor(micros / 1000) <= ms and is_before(newest_until('+'), known)
  return is_behind and string.format('%.0f-0', ms + 1) or '*'
end

local first = NEWEST
while first > OLDEST and #redis.call('XRANGE', events, ARGV[first - 1], ARGV[first - 1]) == 0 do first = first - 1 end
local lost = NEWEST - first + 1

local times, said, kept = string.match(redis.call('HGET', sums, 'regressed') or '0\t0-0\t0-0', '^(%d+)\t(%S+)\t(%S+)$')
if is_before(ARGV[NEWEST], said) then return {tonumber(times), kept, ARGV[first], lost} end

-- The count goes back in time too.
times = math.max(times, known_times)
kept = newest_until('(' .. ARGV[first])
local text = string.format('%s\t%s\nregressed\t%s\t\t\t\t%s\t\t', now_ms, instance, kept, ARGV[NEWEST])
said = redis.call('XADD', events, 'MAXLEN', '~', events_max, next_id(ARGV[NEWEST]), 'e1', text)
redis.call('HSET', sums, 'regressed', string.format('%.0f\t%s\t%s', times + 1, said, kept))
redis.call('UNLINK', seqs, seqs_before)
return {times + 1, kept, ARGV[first], lost}
