-- mailboxes: go through the mailboxes of a call, each with the keys that are its own.
--
-- Scripts that say `-- Uses shard, mailboxes` have this text put before them, after shard.

-- each: of the mailboxes whose keys come behind the first `key` ones, in turn: its index, its values, which begin with
-- address and priorities, its boxes, one a lane, and up to two further keys, as many as `more` says.
local function each(mailboxes, key, more)
  local m = 0
  return function()
    m = m + 1
    local mailbox = mailboxes[m]
    if not mailbox then return nil end
    local first, last = key + 1, key + #mailbox[2]
    key = last + more
    return m, mailbox, {unpack(KEYS, first, last)}, more > 0 and KEYS[last + 1], more > 1 and KEYS[last + 2]
  end
end
