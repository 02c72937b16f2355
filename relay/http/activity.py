"""Activity: what happened, what is happening, and what looks wrong."""

import asyncio
import time
from collections import Counter
from typing import Any

import orjson
from aiohttp import web

from relay.errors import Forbidden, RateLimited
from relay.http.answers import Activity, Anomalies, Stats
from relay.http.calls import EVENTS, call
from relay.http.door import HUB, WAITS, identity, json, tenant_asked_for
from relay.http.parameters import LIMIT, TENANT, Choice, Integer, Text
from relay.http.streams import EventStream, whole_number
from relay.http.tasks import LAST_EVENT
from relay.hub import Hub
from relay.protocol import address
from relay.store.agents import Description
from relay.store.events import MOST_LOOKED_AT, PAGE, Event

routes = web.RouteTableDef()

KINDS = frozenset(
    (
        *("accepted", "duplicate", "refused", "taken", "acked", "nacked", "released", "overdue", "touched", "replied"),
        *("expired", "dead", "revived", "cancelled", "joined", "left", "replaced", "swept"),
    )
)
MESSAGE = Text("message", "Only events of the message with this id.", 128)
AGENT = Text("agent", "Only events to or from this agent.")
KIND = Choice("kind", KINDS, "Only events of this kind.")
SINCE_MS = Integer("since_ms", 0, 2**52, 0, "Only events from this time on.")
CLOCKS_DIFFER_MS = 5_000  # the log is ordered by the store's clock, events tell an instance's
COUNTED = ("accepted", "taken", "acked", "refused", "expired", "dead")
POLL_S = 0.25
COUNTERS_EVERY_S = 5.0
MAX_STREAM_S = 3_600.0
STALE_AFTER_MS = 3_600_000
NEARLY_FULL = 0.8


@routes.get("/v1/activity")
@call("inspect", query=(MESSAGE, AGENT, KIND, SINCE_MS, LIMIT, TENANT), answers={200: Activity})
async def activity(request: web.Request) -> web.Response:
    """One message's life, an agent's events, or the latest of all; newest first."""
    hub, tenant = request.app[HUB], tenant_asked_for(request, identity(request))
    since_ms, agent = SINCE_MS.of(request), AGENT.of(request)
    name = address(agent.replace("~", "/", 1), tenant) if agent is not None else None
    if name is not None and name.partition("/")[0] != tenant:
        raise Forbidden("another tenant's")
    wanted = _Wanted(tenant, name, MESSAGE.of(request), KIND.of(request), since_ms)
    limit = LIMIT.of(request)
    found = await asyncio.gather(
        *(
            _latest(hub, shard, max(0, since_ms - CLOCKS_DIFFER_MS), wanted, limit)
            for shard in range(hub.store.keys.shards)
        )
    )
    events = sorted((event for some in found for event in some), key=lambda one: one.fields["at_ms"], reverse=True)
    return json({"events": [event.as_fields() for event in events[:limit]]})


class _Wanted:
    """Which events somebody asked for."""

    def __init__(self, tenant: str, agent: str | None, message: str | None, kind: str | None, since_ms: int) -> None:
        self._tenant = tenant
        self._agent = agent.partition("/")[2] if agent else None
        self._message = message
        self._kind = kind
        self._since_ms = since_ms

    def fits(self, event: Event) -> bool:
        fields = event.fields
        return (
            fields["tenant"] == self._tenant
            and fields["at_ms"] >= self._since_ms
            and (self._message is None or fields["id"] == self._message)
            and (self._kind is None or fields["kind"] == self._kind)
            and (self._agent is None or self._agent in (fields["to"], fields["from"]))
        )


async def _latest(hub: Hub, shard: int, since_ms: int, wanted: _Wanted, limit: int) -> list[Event]:
    found: list[Event] = []
    until, looked_at = "+", 0
    while len(found) < limit and looked_at < MOST_LOOKED_AT:
        page = await hub.store.events.latest(shard, since_ms, until, PAGE)
        for _, events in page:
            found += [event for event in reversed(events) if wanted.fits(event)]
        looked_at += len(page)
        if len(page) < PAGE:
            break
        until = f"({page[-1][0]}"
    return found[:limit]


@routes.get("/v1/events", allow_head=False)
@call("inspect", query=(TENANT,), headers=(LAST_EVENT,), answers={200: EVENTS}, errors=(RateLimited,))
async def events(request: web.Request) -> web.StreamResponse:
    """Live events of the tenant, and counters (an admin's are the instance's), as Server-Sent Events."""
    who = identity(request)
    tenant = tenant_asked_for(request, who)
    with request.app[WAITS].one_more(who):
        return await _follow(request, request.app[HUB], tenant, sees_all="admin" in who.scopes)


async def _follow(request: web.Request, hub: Hub, tenant: str, sees_all: bool) -> web.StreamResponse:
    """An event's id is its millisecond and its number among the tenant's events of that one."""
    stream = EventStream(request)
    milliseconds, _, number = stream.last_event_id.partition("-")
    resumed_ms, seen = whole_number(milliseconds, 15), whole_number(number) or 0
    from_ms = hub.store.clock.now_ms() if resumed_ms is None else resumed_ms
    await stream.open()
    until, counted_at = time.monotonic() + MAX_STREAM_S, -COUNTERS_EVERY_S
    counted = dict.fromkeys(COUNTED, 0)  # of the tenant alone, since it follows
    while stream.is_read and time.monotonic() < until and not hub.draining:
        from_ms, found = await hub.store.events.since(from_ms, PAGE)
        numbers: Counter[int] = Counter()
        for event in found:
            if event.fields["tenant"] == tenant:
                at_ms = event.place[0]
                numbers[at_ms] += 1
                if event.fields["kind"] in counted:
                    counted[event.fields["kind"]] += 1
                if at_ms != resumed_ms or numbers[at_ms] > seen:
                    await stream.send(
                        event.fields["kind"], orjson.dumps(event.as_fields()), f"{at_ms}-{numbers[at_ms]}"
                    )
        if time.monotonic() - counted_at >= COUNTERS_EVERY_S:
            counted_at = time.monotonic()
            await stream.send("counters", orjson.dumps(_counters(hub) if sees_all else counted))
        await stream.keep_alive()
        if not found:
            await asyncio.sleep(POLL_S)
    return await stream.close()


def _counters(hub: Hub) -> dict[str, Any]:
    metrics = hub.metrics
    return {
        "instance": hub.store.instance,
        "sessions": metrics.sessions,
        "accepted": metrics.accepted,
        "delivered": metrics.delivered,
        "acked": metrics.settled["ack"],
        "refused": metrics.refused.total(),
        "waiting": sum(messages for messages, _ in metrics.depth.values()),
    }


async def _described(hub: Hub, tenant: str) -> list[Description]:
    names = await asyncio.gather(*(hub.store.agents.names(shard, tenant) for shard in range(hub.store.keys.shards)))
    flat = [name for some in names for name in some]
    return await hub.store.agents.describe(flat) if flat else []


@routes.get("/v1/stats")
@call("inspect", "metrics", query=(TENANT,), answers={200: Stats})
async def stats(request: web.Request) -> web.Response:
    """What a tenant has; for an admin, or with the scope metrics, also what this instance counts."""
    hub, who = request.app[HUB], identity(request)
    tenant = tenant_asked_for(request, who)
    found = await _described(hub, tenant)
    oldest = [one.oldest_ms for one in found if one.oldest_ms is not None]
    answer: dict[str, Any] = {
        "tenant": tenant,
        "agents": len(found),
        "online": sum(one.online for one in found),
        "messages": sum(one.depth for one in found),
        "bytes": sum(one.bytes for one in found),
        "dead": sum(one.dead for one in found),
        "oldest_ms": min(oldest) if oldest else None,
    }
    if who.scopes & {"admin", "metrics"}:
        answer["instance"] = _counters(hub)
    return json(answer)


@routes.get("/v1/anomalies")
@call("inspect", query=(TENANT,), answers={200: Anomalies})
async def anomalies(request: web.Request) -> web.Response:
    """Mailboxes that want attention: nearly full, unread for long, or with dead letters."""
    hub, tenant = request.app[HUB], tenant_asked_for(request, identity(request))
    now_ms = hub.store.clock.now_ms()
    found = [one for agent in await _described(hub, tenant) for one in _wrong_with(agent, hub, now_ms)]
    return json({"anomalies": found})


def _wrong_with(agent: Description, hub: Hub, now_ms: int) -> list[dict[str, Any]]:
    wrong: list[dict[str, Any]] = []
    limit = agent.max_messages or hub.settings.mailbox_max_messages
    if agent.depth >= NEARLY_FULL * limit:
        wrong.append({"kind": "nearly_full", "depth": agent.depth, "limit": limit})
    if agent.oldest_ms is not None and now_ms - agent.oldest_ms > STALE_AFTER_MS:
        wrong.append({"kind": "stale", "oldest_ms": agent.oldest_ms, "online": agent.online})
    if agent.dead:
        wrong.append({"kind": "dead_letters", "dead": agent.dead})
    return [{"agent": agent.address, **one} for one in wrong]
