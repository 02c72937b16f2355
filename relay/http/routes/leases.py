"""Leases: workers pull messages, each with a lock token."""

import time
from contextlib import suppress
from functools import partial
from typing import Annotated

from aiohttp import web
from msgspec import Meta, Raw

from relay.auth import Identity
from relay.core.instance.instance import Instance
from relay.core.intake import pay
from relay.core.lifecycle import note_taken
from relay.core.session.deliver_frame import delivery
from relay.errors import (
    Busy,
    RateLimited,
    RelayError,
)
from relay.http.answer_budget import reserved
from relay.http.app_keys import INSTANCE, LONG_POLLS
from relay.http.auth import check_may_see_payloads, identity, own_agent
from relay.http.body import RequestBody, read_body
from relay.http.long_poll import has_gone, wait_for
from relay.http.operation import operation
from relay.http.responses import json_response
from relay.http.routes.settling import settle_entries
from relay.http.schemas.fields import doc
from relay.http.schemas.leases import LeasedMessages
from relay.protocol.message import Short
from relay.store.mailbox.leases import LockToken, Search
from relay.store.record.taken import Taken

routes = web.RouteTableDef()

Consumer = Annotated[str, Meta(pattern=r"^[!-~]{1,64}$(?!\n)")]  # `$` alone lets a newline pass in Python


class Lease(RequestBody):
    """How many messages a puller wants, and how long it may hold them."""

    max: Annotated[int, Meta(ge=1, le=100), doc("How many messages at most.", 10)] = 1
    types: Annotated[
        Annotated[list[Short], Meta(max_length=100)] | None, doc("Only these types; null or []: any.", ["job"])
    ] = None
    wait_s: Annotated[float, Meta(ge=0, le=30), doc("How long to wait for the first message, in seconds.", 20)] = 0
    ack_timeout_s: Annotated[float, Meta(gt=0, le=86_400), doc("How long the lease lasts, in seconds.", 30)] = 30
    consumer: Annotated[Consumer | None, doc("A name for operators to see.", "w1")] = None


@routes.post("/v1/agents/{agent}/lease")
@operation("receive", body=Lease, answers={200: LeasedMessages}, errors=(Busy, RateLimited))
async def lease(request: web.Request) -> web.Response:
    """Lease messages.

    Exactly those that are returned: fewer than `max` if they are long, none if none comes in time. Those of another
    agent are for an admin with the scope `inspect`.
    """
    who = identity(request)
    address = own_agent(request, who)
    check_may_see_payloads(who, address, "receive")
    wanted = await read_body(request, Lease)
    instance = request.app[INSTANCE]
    if address == who.address:
        instance.store.agents.appear(address)  # in any tenant: whoever serves a mailbox is known as its owner
    until, asked_ms = who.until(wanted.wait_s), instance.store.clock.now_ms()
    search = _search(instance, who, wanted.types)
    leased = await _take(request, address, wanted, search, asked_ms)
    if not leased and wanted.wait_s > 0:
        with request.app[LONG_POLLS].slot(who):
            leased = await _wait_for_mail(request, address, wanted, search, asked_ms, until)
    if leased and has_gone(request):
        instance.spawn(_give_back(instance, address, {row.entry: token for row, token in leased}))
        leased = []
    note_taken(instance.metrics, address, [row for row, _ in leased], instance.store.clock.now_ms())
    return json_response({"messages": [_delivery(row, token) for row, token in leased]})


def _search(instance: Instance, who: Identity, types: list[str] | None) -> Search | None:
    """Whoever looks for types pays for what is read of others."""
    if not types:
        return None
    store = instance.store
    return Search(types, partial(pay, store, who.address), partial(store.rates.give_back, who.address))


async def _take(
    request: web.Request, address: str, wanted: Lease, search: Search | None, asked_ms: int, waited: bool = False
) -> list[tuple[Taken, LockToken]]:
    if request.app[INSTANCE].pauses.stops(address):
        return []
    ack_timeout_ms = max(1, int(wanted.ack_timeout_s * 1_000))
    with reserved(request) as most_bytes:
        return await request.app[INSTANCE].store.leases.take(
            address, wanted.max, most_bytes, search, ack_timeout_ms, wanted.consumer, asked_ms, waited
        )


async def _wait_for_mail(
    request: web.Request, address: str, wanted: Lease, search: Search | None, asked_ms: int, until: float
) -> list[tuple[Taken, LockToken]]:
    """Waits like a session does: registered, woken through the instance's channel, looking again now and then."""
    instance = request.app[INSTANCE]
    watcher = instance.sessions.new_name()
    with instance.notifier.waiting_for(("mail", address), ("replaced", watcher)) as event:
        try:
            while not instance.draining and not has_gone(request):
                event.clear()
                await instance.store.leases.watch(address, watcher, instance.membership.lease_ms)
                leased = await _take(request, address, wanted, search, asked_ms, waited=True)
                if leased or until <= time.monotonic():
                    return leased
                await wait_for(event, request, until)
            return []
        finally:
            instance.spawn(instance.membership.leave(address, watcher, "puller"))


async def _give_back(instance: Instance, address: str, entries: dict[str, LockToken]) -> None:
    """Releases what was leased to a caller that has gone; the attempt is not counted."""
    with suppress(RelayError):  # else its time to be acked brings it back
        await settle_entries(instance, "release", address, entries)


def _delivery(row: Taken, token: LockToken) -> Raw:
    """A Leased."""
    row.was_stored = token.was_stored
    return Raw(delivery(row, str(token)))
