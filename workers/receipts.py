"""Receipts: forwards what was left in an outbox by a dead or deaf instance, or by a sender that does not confirm."""

from relay.store.store import Store

LEFT_AFTER_MS = 5_000  # an instance brings it on at once; what is older was left behind
AT_ONCE = 100


async def forward_shard(store: Store, shard: int, now_ms: int) -> int:
    """Forwards old outbox entries, and answers that full mailboxes are owed. Idempotent.

    Returns how many entries and answers were forwarded.
    """
    count, after = 0, "-"
    # Page after page: what cannot be brought on, because a mailbox is full, must not stand in the way of the rest.
    while left := await store.receipts.left_in_outbox(shard, after, now_ms - LEFT_AFTER_MS, AT_ONCE):
        for entry, fields in left:
            await store.receipts.left_behind(shard, entry, fields)
        await store.pipeline.finish()
        count, after = count + len(left), f"({left[-1][0].decode()}"
    return count + await store.replies.send_owed(shard, now_ms)
