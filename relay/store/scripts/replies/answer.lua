#!lua
-- answer: keep what is known of a task, tell who waits for it, and hold its requester to a number of tasks and of bytes.
-- Keeping the same twice keeps it once.
-- Not on a full server: it only adds; what it is to keep stays in the outbox meanwhile.
-- Uses shard
--
-- KEYS  SHARD
--       27 task   HASH  to, thread, turn:<task>, watch:<instance>; by recipient: part:<origin> <to>, end <to>, ended <to>
--       28 tasks  ZSET  the requester's tasks: below 0 those that have ended, by when; above it the others, by when they expire
--       29 sizes  HASH  task id -> bytes kept with it; "" -> of all the requester's tasks
-- ARGV  CALL
--         requester, task id
--         fields        {name, value, …}
--         has_ended     whether the task has ended with this
--         lives_ms      how long the task is kept from now, at least
--         max_tasks, max_bytes  of this requester
-- Returns the ids of tasks that must go, for there were too many: first those that have ended, the oldest first

local requester, task_id, fields, has_ended, lives_ms, max_tasks, max_bytes = open()
local task, tasks, sizes = unpack(KEYS, SHARD_KEYS + 1)
local TASK_BYTES, FIELD_BYTES = 200, 80  -- what the store needs beside the text
local ENDED = 1e15  -- subtracted from the time of an end, so that the ended come first

local function live_at_least(key)
  if redis.call('PTTL', key) < lives_ms then redis.call('PEXPIRE', key, lives_ms) end
end

local grown = 0
for n = 1, #fields, 2 do
  local name, value = fields[n], fields[n + 1]
  local before = redis.call('HSTRLEN', task, name)
  local is_new = redis.call('HSET', task, name, value) == 1
  grown = grown + #value - before + (is_new and #name + FIELD_BYTES or 0)
end
if redis.call('HEXISTS', sizes, task_id) == 0 then grown = grown + TASK_BYTES end
redis.call('HINCRBY', sizes, task_id, grown)
local size = redis.call('HINCRBY', sizes, '', grown)
local was_open = tonumber(redis.call('ZSCORE', tasks, task_id) or 0) >= 0
if has_ended then redis.call('ZADD', tasks, book.now_ms - ENDED, task_id)
elseif was_open then redis.call('ZADD', tasks, book.now_ms + lives_ms, task_id) end
live_at_least(task)
live_at_least(tasks)
live_at_least(sizes)

local watching = {}
for _, name in ipairs(redis.call('HKEYS', task)) do
  local instance = string.match(name, '^watch:(.+)$')
  if instance then
    tell(instance, 'task\t' .. requester .. '\t' .. task_id)
    watching[#watching + 1] = name
  end
end
if has_ended and #watching > 0 then redis.call('HDEL', task, unpack(watching)) end

local gone = {}
local function forget(id)
  size = size - tonumber(redis.call('HGET', sizes, id) or 0)
  redis.call('HDEL', sizes, id)
  redis.call('ZREM', tasks, id)
end
for _, id in ipairs(redis.call('ZRANGE', tasks, 0, book.now_ms, 'BYSCORE', 'LIMIT', 0, 100)) do forget(id) end
while redis.call('ZCARD', tasks) > max_tasks or size > max_bytes do
  local first = redis.call('ZRANGE', tasks, 0, 1)
  local id = first[1] == task_id and first[2] or first[1]
  if not id or id == task_id then break end
  forget(id)
  gone[#gone + 1] = id
end
redis.call('HSET', sizes, '', size)
flush()
return gone
