#!lua flags=allow-oom
-- probe: tell an instance something on the way of wakes, to see that it hears.
-- Uses shard
--
-- KEYS  SHARD
-- ARGV  CALL
--         probed        the instance
--         token         what it is to answer
-- Returns how many heard it

local probed, token = open()
tell(probed .. '.', 'probe\t' .. token)
flush()
return book.wakes_sent - book.wakes_unheard
