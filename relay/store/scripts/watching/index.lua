#!lua flags=allow-oom
-- index: enter what waits in a mailbox and has a thread into the index of threads, for data that are older than that.
-- Uses shard, walking
--
-- KEYS  SHARD
--       27+ one STREAM per lane of the mailbox
-- ARGV  CALL
--         lane index    where to go on; 1 at first
--         after         and behind which stream id; "" for the lane's beginning
-- Returns {next lane index or 0 at the end, next after}

local lane, after = open()
lane, after = walk({unpack(KEYS, SHARD_KEYS + 1)}, lane, after, function(_, _, _, fields)
  local _, tenant, to, from, _, thread = string.match(fields[2] or '', HEAD)
  if thread and thread ~= '' then
    local seq = string.match(fields[4] or '', '^%d+') or '0'
    redis.call('ZADD', threads, 0, in_thread(tenant .. '\t' .. to .. '\t' .. from .. '\t' .. thread, seq))
  end
  return true
end)
return {lane, after}
