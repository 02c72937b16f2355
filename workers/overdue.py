"""Overdue: ends holds whose time is over, delays that have passed, and TTLs shorter than the relay's."""

import logging
from collections import Counter

from relay.store.store import Store

log = logging.getLogger(__name__)

AT_ONCE = 200


async def check_shard(store: Store, shard: int, now_ms: int) -> int:
    """Does to each entry what was due by now. Returns how many changed."""
    became: Counter[str] = Counter()
    while members := await store.overdue.due_entries(shard, now_ms, AT_ONCE):
        words = await store.overdue.carry_out(shard, members)
        became.update(words)
        _report(shard, members, words)
        if len(members) < AT_ONCE:
            break
    return became.total() - became["nothing"]


def _report(shard: int, members: list[str], words: list[str]) -> None:
    for member, word in zip(members, words, strict=True):
        if word == "unreadable":
            _, mailbox, entry = member.split("\t")
            log.warning("record_unreadable", extra={"shard": shard, "mailbox": mailbox, "entry": entry})
