-- thread: how far one direction of a thread has come.
-- Uses shard
--
-- KEYS  SHARD
--       21+ one STREAM per lane of the recipient's mailbox
-- ARGV  1 now_ms, instance, events_max, ended_ms, publish, wake_prefix,
--         thread key
-- Returns {last_seq, settled_seq, pending}: settled_seq is the number up to which nothing waits in the mailbox

local key = open()
local pair, thread = string.match(key, '^([^\t]*\t[^\t]*\t[^\t]*)\t(.*)$')
local last = tonumber(redis.call('HGET', seqs, key) or redis.call('HGET', seqs_before, key) or 0)
local first_waiting, count = nil, 0
for n = SHARD_KEYS + 1, #KEYS do
  for _, found in ipairs(redis.call('XRANGE', KEYS[n], '-', '+')) do
    local its_pair, its_thread = string.match(found[2][2], '^([^\t]*\t[^\t]*\t[^\t]*)\t[^\t]*\t[^\t]*\t([^\t]*)\t')
    if its_pair == pair and its_thread == thread then
      local seq = tonumber((string.match(found[2][4], '^(%d+)')))
      if not first_waiting or seq < first_waiting then first_waiting = seq end
      count = count + 1
    end
  end
end
return {last, first_waiting and first_waiting - 1 or last, count}
