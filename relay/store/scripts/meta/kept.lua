#!lua flags=no-writes
-- kept: whether the event log still has an entry that was written there. Trimmed is not lost.
--
-- KEYS  1 events  STREAM  every transition
-- ARGV  1 entry
-- Returns 1, or 0 if the store has gone back to a time before it

local events, entry = KEYS[1], ARGV[1]
if redis.call('EXISTS', events) == 0 then return 0 end
if #redis.call('XRANGE', events, entry, entry) > 0 then return 1 end
local info = {}
local flat = redis.call('XINFO', 'STREAM', events)
for n = 1, #flat, 2 do info[flat[n]] = flat[n + 1] end
local is_trimmed = info['entries-added'] > info['length']
-- Entries are trimmed from the beginning, and lost from the end.
return is_trimmed and #redis.call('XRANGE', events, '-', entry, 'COUNT', 1) == 0 and 1 or 0
