"""Receipts: brings on what an instance left in an outbox, because it died or could not reach the other shard."""

from relay.store.store import Store

LEFT_AFTER_MS = 5_000  # an instance forwards at once; what is older was left behind
AT_ONCE = 100


async def forward_shard(store: Store, shard: int, now_ms: int) -> int:
    """Forwards again what is still there: doing it twice does it once. Returns how many entries were brought on."""
    count, after = 0, "-"
    # Page after page: what cannot be brought on, because a mailbox is full, must not stand in the way of the rest.
    while left := await store.duties.left_in_outbox(shard, after, now_ms - LEFT_AFTER_MS, AT_ONCE):
        for entry, fields in left:
            store.receipts.forward(shard, entry, fields)
        await store.line.finish()
        count, after = count + len(left), f"({left[-1][0].decode()}"
    return count
