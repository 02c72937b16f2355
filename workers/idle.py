"""Idle: reclaims what is kept for agents that have been away for long."""

from collections.abc import AsyncIterator

from relay.store.store import Store

IDLE_MS = 24 * 3_600_000  # an empty mailbox, unused for this long, gives back its memory
RATES_IDLE_MS = 3_600_000  # a sender's bucket is long full by then
CALLS_IDLE_MS = 3_600_000  # nothing is on its way from an instance for so long
PAGE = 500
AT_ONCE = 20


async def reap_shard(store: Store, shard: int, now_ms: int) -> int:
    """Returns how many agents were found away, and nothing in use that was kept for them."""
    await store.rates.forget_idle(shard, now_ms - RATES_IDLE_MS)
    await store.reaping.forget_calls(shard, now_ms - CALLS_IDLE_MS)
    receipts_before_ms = now_ms - store.settings.message_ttl_s * 1_000
    known_before_ms = now_ms - store.settings.agent_idle_s * 1_000
    reaped = 0
    async for some in _away(store, shard, now_ms):
        words = await store.reaping.reap(shard, some, receipts_before_ms, known_before_ms)
        reaped += len(words) - words.count("in_use")
    return reaped


async def _away(store: Store, shard: int, now_ms: int) -> AsyncIterator[list[str]]:
    """Agents that have not been seen lately or ever, a few at a time."""
    cursor = ""
    while cursor != "0":
        cursor, idle = await store.reaping.idle_agents(shard, now_ms - IDLE_MS, cursor or "0", PAGE)
        for start in range(0, len(idle), AT_ONCE):
            yield idle[start : start + AT_ONCE]
    cursor = ""
    while cursor != "0":
        cursor, idle = await store.reaping.never_seen(shard, cursor or "0", PAGE)
        for start in range(0, len(idle), AT_ONCE):
            yield idle[start : start + AT_ONCE]
