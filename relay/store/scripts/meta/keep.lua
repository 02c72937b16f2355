#!lua flags=allow-oom
-- keep: remember a text for a while in place of the one before, also on a full server.
--
-- KEYS  1 kept  STRING  the text
-- ARGV  1 keep_ms, text
-- Returns "kept"

local kept = KEYS[1]
local keep_ms, text = unpack(ARGV)
redis.call('SET', kept, text, 'PX', keep_ms)
return 'kept'
