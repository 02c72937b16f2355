#!lua flags=allow-oom
-- record: add to a history that keeps its latest entries only, also on a full server: it does not grow beyond them.
--
-- KEYS  1 history  STREAM  the latest snapshots
-- ARGV  1 most     how many entries are kept
--       2 keep_ms  how long the history is kept when nothing more comes
--       3 text     what is added
-- Returns the new entry

local history = KEYS[1]
local most, keep_ms, text = unpack(ARGV)
local entry = redis.call('XADD', history, 'MAXLEN', most, '*', 'snapshot', text)
redis.call('PEXPIRE', history, keep_ms)
return entry
