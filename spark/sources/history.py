"""Whether a shard's log is still the one that was read, and if it has gone back in time, to where."""

from collections.abc import Iterator
from typing import Any

from spark.sources import event_log, parsing
from spark.sources.archived import ArchivedLog, by_entry
from spark.sources.event_log import Mark
from spark.sources.store import Store

PAGE = 1_000


def has(store: Store, shard: int, mark: Mark) -> bool:
    """Whether the log has this very entry."""
    key = store.key(shard, "events")
    found = store.server_of(shard).execute_command("XRANGE", key, mark.id, mark.id)
    return bool(found) and mark.digest in ("", event_log.digest(found[0][1]))


def still_has(store: Store, shard: int, read: Mark) -> bool:
    """Whether the log can be the one that was read up to there: it has that entry, or has it trimmed.

    Entries are trimmed from the beginning, and all that were read with it. What is missing otherwise is undone.
    """
    if has(store, shard, read):
        return True
    log = event_log.extent(store, shard)  # only now: what is trimmed before this counts as trimmed
    begins_later = log.first is None or log.first.order > read.order
    return begins_later and log.removed >= read.nth and log.last.order >= read.order


def fork(store: Store, shard: int, read: Mark, archived: ArchivedLog) -> Mark:
    """The last entry that a log which has gone back in time shares with the archive, or that both had.

    Ids alone do not tell: a server whose clock is behind gives ids between those that are undone, or the same ones.
    """
    last = event_log.extent(store, shard).last
    nth = last.nth
    for page in _pages_back(store, shard, last.id):
        of_log = by_entry(parsing.parse(shard, page[::-1]))
        of_archive = archived.entries(min(of_log), min(max(of_log), read.order))
        for id, _ in page:
            order = event_log.order(id.decode())
            if of_archive.get(order) == of_log[order]:
                return Mark(id.decode(), nth)
            nth -= 1
    # None is left of what both have. The first that was trimmed are the same, because new ones are not trimmed unread.
    return Mark(archived.before_last(read.nth - nth), nth)


def _pages_back(store: Store, shard: int, end: str) -> Iterator[list[Any]]:
    """The log from there to its beginning."""
    server, key = store.server_of(shard), store.key(shard, "events")
    while page := server.execute_command("XREVRANGE", key, end, "-", "COUNT", PAGE):
        yield page
        end = f"({page[-1][0].decode()}"
