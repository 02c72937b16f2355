#!lua flags=no-writes
-- dead: a page of a dead-letter box.
-- Uses shard, walking
--
-- KEYS  SHARD
--       27 dead  STREAM  the dead-letter box
-- ARGV  CALL
--         after         behind which entry to go on; "" for the beginning
--         limit         how many
--         with_body     whether bodies are wanted
-- A page may be short and still not be the last one: the look itself is bounded.
-- Returns {next after or "" at the end, rows} with rows {id, fields in their order}; without bodies theirs is empty

local after, limit, with_body = open()
local rows = {}
local lane
lane, after = walk({KEYS[SHARD_KEYS + 1]}, 1, after, function(_, _, id, fields)
  if #rows == limit then return false end
  if not with_body and fields[5] == 'body' then fields[6] = '' end
  rows[#rows + 1] = {id, fields}
  return true
end)
return {lane == 0 and '' or after, rows}
