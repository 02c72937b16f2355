"""Receipts: brings on what an instance left in an outbox, because it died or could not reach the other shard."""

from relay.store.store import Store

LEFT_AFTER_MS = 5_000  # an instance forwards at once; what is older was left behind
AT_ONCE = 100


async def forward_shard(store: Store, shard: int, now_ms: int) -> int:
    """Forwards again what is still there: doing it twice does it once. Returns how many entries were brought on."""
    left = await store.duties.left_in_outbox(shard, now_ms - LEFT_AFTER_MS, AT_ONCE)
    for entry, fields in left:
        store.receipts.forward(shard, entry, fields)
    if left:
        await store.line.finish()
    return len(left)
