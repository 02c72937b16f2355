"""The sweeper: expires messages past their TTL, and trims old events."""

import logging

from relay.store.store import Store

log = logging.getLogger(__name__)

MAILBOXES_AT_ONCE = 20
MAILBOXES_PER_SWEEP = 100_000


async def sweep_shard(store: Store, shard: int, now_ms: int) -> int:
    """Visits only the mailboxes whose oldest entry is past the TTL. Returns how many messages were ended."""
    oldest_ms = now_ms - store.settings.message_ttl_s * 1_000
    due = await store.expiry.due_mailboxes(shard, oldest_ms, MAILBOXES_PER_SWEEP)
    total = 0
    for start in range(0, len(due), MAILBOXES_AT_ONCE):
        total += await _sweep(store, shard, due[start : start + MAILBOXES_AT_ONCE])
    keep_ms = store.settings.events_keep_s * 1_000
    keep_unarchived_ms = store.settings.events_keep_unarchived_s * 1_000
    await store.trimming.trim(shard, now_ms - keep_ms, now_ms - keep_unarchived_ms)
    return total


async def _sweep(store: Store, shard: int, addresses: list[str]) -> int:
    total = 0
    while addresses:
        ended = await store.expiry.expire(shard, addresses)
        for address, (count, _) in ended.items():
            if count:
                log.info("swept", extra={"agent": address, "count": count})
                total += count
        addresses = [address for address, (_, more) in ended.items() if more]
    return total
