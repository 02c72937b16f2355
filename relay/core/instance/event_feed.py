"""Feeds: the events of a tenant as they happen, read once for all followers on this instance."""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from relay.errors import RelayError
from relay.store.record.events import Event
from relay.store.watching.history import History, Wanted

POLL_S = 0.25  # how often the logs are read
POLL_BYTES = 112 * 1_024  # of a tenant's own events that one poll takes: some 5,000 events a second
LONGEST_LAG_MS = 10_000  # a feed that is further behind leaves something out, and says so
RETRY_S = 1.0  # when the store is away
MOST_QUEUED = 20_000  # events that wait for one follower; who has more to read reads the log itself

FeedCursor = tuple[int, int]  # a millisecond, and the number of an event among the tenant's of that one
BEGINNING: FeedCursor = (0, 0)


class Batch:
    """Events of whole milliseconds, in order. A batch is encoded once for all followers with the same filter."""

    __slots__ = ("_by_wanted", "events", "from_ms", "gap_from_ms", "to_ms")

    def __init__(self, from_ms: int, to_ms: int, events: list[Event], gap_from_ms: int | None = None) -> None:
        self.from_ms = from_ms
        self.to_ms = to_ms  # the first millisecond that is not in it
        self.events = events
        self.gap_from_ms = gap_from_ms  # what happened from here on to its end was left out
        self._by_wanted: dict[tuple[Wanted, FeedCursor], tuple[bytes, Counter[str]]] = {}

    def shown(self, wanted: Wanted, after: FeedCursor = BEGINNING) -> tuple[bytes, Counter[str]]:
        """The matching events after that place, as Server-Sent Events, and their number by kind."""
        after = after if after[0] >= self.from_ms else BEGINNING
        found = self._by_wanted.get((wanted, after))
        if found is None:
            found = self._by_wanted[wanted, after] = self._show(wanted, after)
        return found

    def _show(self, wanted: Wanted, after: FeedCursor) -> tuple[bytes, Counter[str]]:
        frames: list[bytes] = []
        counts: Counter[str] = Counter()
        numbers: Counter[int] = Counter()
        for event in self.events:
            at_ms = event.at_ms
            numbers[at_ms] += 1
            place = at_ms, numbers[at_ms]
            seen = wanted.seen(event) if place > after else None
            if seen is not None:
                counts[seen.fields["kind"]] += 1
                frames.append(_frame(seen, place))
        return b"".join(frames), counts


def _frame(event: Event, place: FeedCursor) -> bytes:
    kind, data = event.fields["kind"].encode(), msgspec.json.encode(event.as_fields())
    return b"id: %d-%d\nevent: %b\ndata: %b\n\n" % (*place, kind, data)


class Follower:
    """A follower of a feed: events wait here until it reads them."""

    def __init__(self, from_ms: int) -> None:
        self.from_ms = from_ms  # what happens from this millisecond on waits here, or is told later
        self._batches: deque[Batch] = deque()
        self._news = asyncio.Event()

    def tell(self, batch: Batch) -> None:
        """Queues a batch. A follower that cannot keep up loses its queue, and reads the log up to `from_ms` itself."""
        self._batches.append(batch)
        if sum(len(waiting.events) for waiting in self._batches) > MOST_QUEUED:
            self._batches.clear()
            self.from_ms = batch.to_ms
        self._news.set()

    async def next(self, within_s: float) -> Batch | None:
        """The next batch; None if there is none in that time."""
        try:
            async with asyncio.timeout(within_s):
                while not self._batches:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            return None
        batch = self._batches.popleft()
        self.from_ms = batch.to_ms
        return batch


class Feed:
    """The events of one tenant. It reads while somebody follows."""

    def __init__(self, history: History, tenant: str, now_ms: Callable[[], int]) -> None:
        self._history = history
        self._wanted = Wanted(tenant)
        self._now_ms = now_ms
        self.next_ms = now_ms()  # what happens from this millisecond on has not been read
        self.followers: set[Follower] = set()

    async def run(self) -> None:
        while self.followers:
            began = time.monotonic()
            try:
                await self.poll()
                pause_s = max(0.0, POLL_S - (time.monotonic() - began))
            except RelayError:
                pause_s = RETRY_S
            await asyncio.sleep(pause_s)

    async def poll(self) -> None:
        """Reads what is next and tells everybody. Raises StoreUnavailable."""
        from_ms = self.next_ms
        next_ms, is_behind, events = await self._history.since(from_ms, self._wanted, POLL_BYTES)
        now_ms = self._now_ms()
        is_late = is_behind and now_ms - next_ms > LONGEST_LAG_MS
        self.next_ms = now_ms if is_late else next_ms
        batch = Batch(from_ms, self.next_ms, events, next_ms if is_late else None)
        for follower in self.followers:
            follower.tell(batch)


class Feeds:
    """One feed for each tenant that somebody follows here."""

    def __init__(
        self, history: History, now_ms: Callable[[], int], spawn: Callable[[Coroutine[Any, Any, None]], None]
    ) -> None:
        self._history = history
        self._now_ms = now_ms
        self._spawn = spawn
        self._feeds: dict[str, Feed] = {}

    @contextmanager
    def follow(self, tenant: str) -> Iterator[Follower]:
        """Somebody follows a tenant for a while."""
        feed = self._feeds.get(tenant)
        if feed is None:
            feed = self._feeds[tenant] = Feed(self._history, tenant, self._now_ms)
            self._spawn(self._run(tenant, feed))
        follower = Follower(feed.next_ms)
        feed.followers.add(follower)
        try:
            yield follower
        finally:
            feed.followers.discard(follower)

    async def _run(self, tenant: str, feed: Feed) -> None:
        """A feed is forgotten in the same step in which it finds that nobody follows."""
        try:
            await feed.run()
        finally:
            del self._feeds[tenant]
