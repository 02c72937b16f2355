"""Events: live, as Server-Sent Events."""

import time
from collections import Counter

import msgspec
from aiohttp import web

from relay.auth import Identity
from relay.core.instance.event_feed import BEGINNING, Batch, FeedCursor, Follower
from relay.core.instance.instance import Instance
from relay.errors import RateLimited, RelayError
from relay.http.app_keys import INSTANCE, LONG_POLLS
from relay.http.auth import identity
from relay.http.operation import EVENTS, operation
from relay.http.query import read_query
from relay.http.routes.activity import EventsQuery, wanted_events
from relay.http.routes.stats import counters
from relay.http.routes.tasks import LAST_EVENT
from relay.http.sse import EventStream, whole_number
from relay.store.agents.rates import LIST
from relay.store.watching.history import Wanted

routes = web.RouteTableDef()

COUNTED = ("accepted", "taken", "acked", "refused", "expired", "dead")
LOOK_S = 0.5  # how often a follower sees whether its client is still there
COUNTERS_EVERY_S = 5.0
MAX_STREAM_S = 3_600.0


@routes.get("/v1/events", allow_head=False)
@operation(
    "inspect", query=EventsQuery, headers=(LAST_EVENT,), answers={200: EVENTS}, errors=(RateLimited,), price=LIST
)
async def events(request: web.Request) -> web.StreamResponse:
    """Follow what happens.

    Server-Sent Events: the tenant's events, and counters now and then (for an operator, the instance's). A `gap` says
    what was left out.
    """
    instance, who = request.app[INSTANCE], identity(request)
    wanted = wanted_events(read_query(request, EventsQuery), who)
    with request.app[LONG_POLLS].slot(who), instance.feeds.follow(wanted.tenant) as follower:
        return await _Stream(request, instance, who, wanted, follower).run()


class _Stream:
    """One follower: first the log since its last event, then the feed."""

    def __init__(
        self, request: web.Request, instance: Instance, who: Identity, wanted: Wanted, follower: Follower
    ) -> None:
        self._instance = instance
        self._who = who
        self._wanted = wanted
        self._follower = follower
        self._stream = EventStream(request)
        self._until = who.until(MAX_STREAM_S)
        self._after = _place(self._stream.last_event_id) or (instance.store.clock.now_ms(), 0)
        self._told_to_ms = min(self._after[0], follower.from_ms)  # everything before is told, or not wanted
        self._counted: Counter[str] = Counter()  # of what was told
        self._counted_at = -COUNTERS_EVERY_S

    async def run(self) -> web.StreamResponse:
        await self._stream.open()
        try:
            while (reason := self._over()) is None:
                await self._go_on()
        except RelayError as error:
            reason = error.message
        if self._stream.is_read:
            await self._stream.send("end", msgspec.json.encode({"reason": reason}))
        return await self._stream.close()

    async def _go_on(self) -> None:
        await self._tell_counters()
        await self._catch_up(self._follower.from_ms)
        batch = await self._follower.next(LOOK_S)
        if batch is not None:
            await self._catch_up(batch.from_ms)  # one that did not keep up has lost what came before
            await self._tell(batch)
        await self._stream.keep_alive()

    def _over(self) -> str | None:
        """Why the stream ends now, or None."""
        if not self._stream.is_read:
            return "nobody reads"
        if self._instance.draining:
            return "the instance is stopping"
        if time.monotonic() >= self._until:
            return "the token has expired" if self._who.has_expired() else "an hour is over"
        return None

    async def _catch_up(self, to_ms: int) -> None:
        """Reads the log itself up to where the feed goes on."""
        if self._told_to_ms >= to_ms:
            return
        whole_since_ms = await self._instance.store.observing.whole_since_ms()
        if whole_since_ms is not None and self._told_to_ms < whole_since_ms:
            await self._tell_gap(self._told_to_ms, whole_since_ms, "the log no longer reaches back")
        while self._told_to_ms < to_ms and self._stream.is_read:
            everything = Wanted(self._wanted.tenant)
            next_ms, _, found = await self._instance.store.history.since(self._told_to_ms, everything, before_ms=to_ms)
            await self._tell(Batch(self._told_to_ms, next_ms, found))

    async def _tell(self, batch: Batch) -> None:
        frames, counts = batch.shown(self._wanted, self._after)
        self._counted.update(counts)
        if frames:
            await self._stream.send_frames(frames)
        if batch.gap_from_ms is not None:
            await self._tell_gap(batch.gap_from_ms, batch.to_ms, "too much at once")
        self._told_to_ms = batch.to_ms

    async def _tell_gap(self, from_ms: int, to_ms: int, reason: str) -> None:
        gap = {"from_ms": from_ms, "to_ms": to_ms, "reason": reason}
        await self._stream.send("gap", msgspec.json.encode(gap))

    async def _tell_counters(self) -> None:
        """Of the instance for an operator, of the tenant alone for others."""
        if time.monotonic() - self._counted_at < COUNTERS_EVERY_S:
            return
        self._counted_at = time.monotonic()
        told = {kind: self._counted[kind] for kind in COUNTED}
        await self._stream.send(
            "counters", msgspec.json.encode(counters(self._instance) if self._who.is_operator else told)
        )


def _place(last_event_id: str) -> FeedCursor | None:
    """An event's id is its millisecond and its number among the tenant's events of that one."""
    milliseconds, _, number = last_event_id.partition("-")
    at_ms = whole_number(milliseconds, 15)
    return None if at_ms is None else (at_ms, whole_number(number) or BEGINNING[1])
