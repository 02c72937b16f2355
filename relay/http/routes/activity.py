"""Activity: what happened."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated

from aiohttp import web
from msgspec import Meta, convert

from relay.auth import Identity
from relay.core.instance.instance import Instance
from relay.errors import Forbidden, Malformed
from relay.http.app_keys import INSTANCE
from relay.http.auth import identity, tenant_asked_for
from relay.http.did_you_mean import check_names
from relay.http.operation import operation
from relay.http.query import TenantPage, TenantQuery, read_query
from relay.http.responses import json_response
from relay.http.schemas.activity import Activity, EventShown
from relay.http.schemas.fields import doc
from relay.http.sse import whole_number
from relay.protocol.address import address, tenant_of
from relay.store.agents.rates import LIST
from relay.store.record.events import FIRST_EVENTS, Event, complete
from relay.store.watching.history import LogCursor, Wanted

routes = web.RouteTableDef()

KINDS = (
    *("accepted", "duplicate", "refused", "taken", "acked", "nacked", "released", "overdue", "touched", "replied"),
    *("expired", "dead", "revived", "cancelled", "joined", "left", "replaced", "swept"),
    *("paused", "resumed", "dropped", "changed", "set_aside"),
)
ENDS = ("acked", "expired", "dead", "cancelled")
MOST_UNFINISHED = 10  # lives of one id that are looked up in their mailboxes


OfMessage = Annotated[str, Meta(max_length=128), doc("Only events of the message with this id.", "m-1")]
OfAgent = Annotated[str, Meta(max_length=129), doc("Only events to or from this agent.", "bob")]
OfKind = Annotated[str, Meta(max_length=300), doc("Only events of this kind, or of these by commas.", "acked,dead")]
OfSession = Annotated[str, Meta(max_length=300), doc("Only what this session, lease or person did.", "5f0c2a9d1e.7")]
Time = Annotated[int, Meta(ge=0, le=2**52)]


class EventsQuery(TenantQuery):
    message: OfMessage | None = None
    agent: OfAgent | None = None
    kind: OfKind = ""
    session: OfSession | None = None


class ActivityQuery(TenantPage):
    message: OfMessage | None = None
    agent: OfAgent | None = None
    kind: OfKind = ""
    session: OfSession | None = None
    since_ms: Annotated[Time, doc("Only events from this time on, in ms since 1970.", 1_800_000_000_000)] = 0
    until_ms: Annotated[Time | None, doc("Only events before this time, in ms since 1970.", 1_800_000_060_000)] = None


@routes.get("/v1/activity")
@operation("inspect", query=ActivityQuery, answers={200: Activity}, price=LIST)
async def activity(request: web.Request) -> web.Response:
    """List what happened.

    One message's life, an agent's events, or the latest of all; newest first, a page at a time.
    """
    instance, who = request.app[INSTANCE], identity(request)
    asked = read_query(request, ActivityQuery)
    wanted = replace(wanted_events(asked, who), since_ms=asked.since_ms, until_ms=asked.until_ms)
    page = await instance.store.history.latest(wanted, _place(asked.cursor), asked.limit)
    events = complete(page.events)
    if asked.message is not None and (not wanted.kinds or "taken" in wanted.kinds):
        events += [event for began in _unfinished(events) if (event := await _first_delivery(instance, began))]
    events.sort(key=lambda event: event.fields["at_ms"], reverse=True)
    shown = [convert(event.as_fields(), EventShown) for event in events]
    answer = Activity(events=shown, complete=page.back_to is None)
    if page.back_to is None:
        began = asked.message is not None and any(event.fields["kind"] in FIRST_EVENTS for event in events)
        if not began:
            await _note_reach(instance, answer, asked.since_ms)
    else:
        answer.looked_back_to_ms, answer.cursor = page.back_to[0], "-".join(map(str, page.back_to))
    return json_response(answer)


def wanted_events(asked: EventsQuery | ActivityQuery, who: Identity) -> Wanted:
    """Raises Forbidden, Malformed."""
    tenant = tenant_asked_for(asked.tenant, who)
    name = None if asked.agent is None else address(asked.agent.replace("~", "/", 1), tenant)
    if name is not None and asked.tenant is None:
        tenant = tenant_asked_for(tenant_of(name), who)
    if name is not None and tenant_of(name) != tenant:
        raise Forbidden("another tenant's")
    agent = name.partition("/")[2] if name else None
    return Wanted(tenant, agent, asked.message, _kinds(asked.kind), asked.session, sees_blocks=who.is_admin)


def _kinds(text: str) -> frozenset[str]:
    kinds = frozenset(text.split(",")) if text else frozenset()
    check_names(sorted(kinds), KINDS, "kind of event")
    return kinds


async def _note_reach(instance: Instance, answer: Activity, since_ms: int) -> None:
    """Says so if the logs no longer go back to where the question does."""
    whole_since_ms = await instance.store.observing.whole_since_ms()
    if whole_since_ms is None or since_ms >= whole_since_ms:
        return
    answer.reaches_back_to_ms = whole_since_ms
    at = datetime.fromtimestamp(whole_since_ms / 1_000, UTC).isoformat(timespec="seconds")
    answer.note = f"the log goes back to {at}: what happened before is not in it"


def _place(cursor: str | None) -> LogCursor | None:
    if cursor is None:
        return None
    numbers = [whole_number(part, 15) for part in cursor.split("-")]
    match numbers:
        case [int(at_ms), int(number), int(shard), int(index)]:
            return at_ms, number, shard, index
    raise Malformed("cursor: expected one that came with a page")


def _unfinished(events: list[Event]) -> list[Event]:
    """How the latest lives began that have no end here."""
    ended = {event.life for event in events if event.fields["kind"] in ENDS}
    return [event for event in events if event.fields["kind"] in FIRST_EVENTS and event.life not in ended][
        :MOST_UNFINISHED
    ]


async def _first_delivery(instance: Instance, began: Event) -> Event | None:
    """A first delivery that lasts has no event yet: the mailbox knows of it."""
    tenant, to, entry = began.life
    recipient, sender = f"{tenant}/{to}", f"{tenant}/{began.fields['from']}"
    status = await instance.store.lookup.where(sender, recipient, began.fields["id"])
    if status is None or (status.state, status.entry, status.attempt) != ("held", entry, 1):
        return None
    holding = await instance.store.lookup.holder(recipient, entry)
    if holding is None:
        return None
    who, since_ms = holding
    now = {"kind": "taken", "at_ms": max(since_ms, began.fields["at_ms"]), "attempt": 1, "who": who, "instance": ""}
    return Event(began.position, began.shard, began.fields | now)
