#!lua flags=no-writes
-- unread: which of these streams have anything.
--
-- KEYS  1+ receipts  STREAM  of each sender
-- ARGV  none
-- Returns {index of each that has, …}

local waiting = {}
for n, receipts in ipairs(KEYS) do
  if redis.call('XLEN', receipts) > 0 then waiting[#waiting + 1] = n end
end
return waiting
