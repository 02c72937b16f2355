#!lua flags=allow-oom
-- follow: an instance wants to be told when a task gets an answer. Nothing is left behind if the task has just ended.
--
-- KEYS  1 task  HASH  one request; see answer
-- ARGV  1 field  "watch:<instance>"
-- Returns "following" | "gone", the second if there is no such task

local task = KEYS[1]
local field = ARGV[1]
if redis.call('EXISTS', task) == 0 then return 'gone' end
redis.call('HSET', task, field, '1')
return 'following'
