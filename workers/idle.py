"""Idle: reclaims what is kept for agents that have been away for long."""

from relay.store.store import Store

IDLE_MS = 24 * 3_600_000  # an empty mailbox, unused for this long, gives back its memory
RATES_IDLE_MS = 3_600_000  # a sender's bucket is long full by then
CALLS_IDLE_MS = 3_600_000  # nothing is on its way from an instance for so long
AGENTS_PER_ROUND = 30_000  # of all shards: less than a second of the server, however many agents there are
PAGE = 500
AT_ONCE = 20

IdleCursor = tuple[bool, str]  # whether those that were never seen are looked at, and the cursor among them
BEGIN: IdleCursor = (False, "0")


class IdleReaper:
    """Remembers where a round ended, for the next one to go on from there."""

    def __init__(self) -> None:
        self._places: dict[int, IdleCursor] = {}

    async def reap_shard(self, store: Store, shard: int, now_ms: int) -> int:
        """Returns how many agents were found away, and nothing in use that was kept for them."""
        await store.rates.forget_idle(shard, now_ms - RATES_IDLE_MS)
        await store.reaping.forget_calls(shard, now_ms - CALLS_IDLE_MS)
        reaped = 0
        for _ in range(max(2, AGENTS_PER_ROUND // PAGE // store.keys.shards)):
            idle = await self._next_page(store, shard, now_ms)
            for start in range(0, len(idle), AT_ONCE):
                reaped += await _reap(store, shard, now_ms, idle[start : start + AT_ONCE])
            if self._places[shard] == BEGIN:
                break
        return reaped

    async def _next_page(self, store: Store, shard: int, now_ms: int) -> list[str]:
        """Agents that have not been seen lately or ever."""
        of_never_seen, cursor = self._places.get(shard, BEGIN)
        if of_never_seen:
            cursor, idle = await store.reaping.never_seen(shard, cursor, PAGE)
        else:
            cursor, idle = await store.reaping.idle_agents(shard, now_ms - IDLE_MS, cursor, PAGE)
        self._places[shard] = (not of_never_seen if cursor == "0" else of_never_seen, cursor)
        return idle


async def _reap(store: Store, shard: int, now_ms: int, addresses: list[str]) -> int:
    receipts_before_ms = now_ms - store.settings.message_ttl_s * 1_000
    known_before_ms = now_ms - store.settings.agent_idle_s * 1_000
    words = await store.reaping.reap(shard, addresses, receipts_before_ms, known_before_ms)
    return len(words) - words.count("in_use")
