"""Overdue: ends holds whose time is over, delays that have passed, and TTLs shorter than the relay's."""

from collections import Counter

from relay.store.store import Store

AT_ONCE = 200


async def check_shard(store: Store, shard: int, now_ms: int) -> int:
    """Does to each entry what was due by now. Returns how many changed."""
    became: Counter[str] = Counter()
    while members := await store.overdue.due_entries(shard, now_ms, AT_ONCE):
        became.update(await store.overdue.carry_out(shard, members))
        if len(members) < AT_ONCE:
            break
    return became.total() - became["nothing"]
