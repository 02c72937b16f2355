"""Leases: workers pull messages and settle them, proving with a lock token that they are theirs."""

import asyncio
import time
from collections import defaultdict
from contextlib import suppress
from typing import Annotated, Any, Literal

import orjson
from aiohttp import web
from msgspec import Meta, Raw, Struct

from relay.errors import Busy, LockLost, Malformed, NotFound, RateLimited, RelayError, StoreUnavailable
from relay.http.answers import LeasedMessages, SettledEntries, SettledEntry
from relay.http.calls import call
from relay.http.door import HUB, WAITS, body, has_gone, identity, json, own_agent
from relay.http.waiting import wait_for
from relay.hub import Hub
from relay.protocol import MAX_ENTRIES_PER_FRAME, Short, Span, opaque
from relay.sending import not_granted, not_held, spend
from relay.store.leases import LockToken
from relay.store.mailboxes import Settlement, Taken, failure

routes = web.RouteTableDef()

Token = Annotated[str, Meta(max_length=200)]
Entry = Annotated[str, Meta(min_length=1, max_length=64)]
Consumer = Annotated[str, Meta(pattern=r"^[!-~]{1,64}$")]


class Lease(Struct):
    """How much a puller wants, and how long it may hold it."""

    max: Annotated[int, Meta(ge=1, le=100)] = 1
    types: Annotated[list[Short], Meta(max_length=100)] | None = None  # none, or an empty list: whatever there is
    wait_s: Annotated[float, Meta(ge=0, le=30)] = 0
    ack_timeout_s: Annotated[float, Meta(gt=0, le=86_400)] = 30
    consumer: Consumer | None = None


@routes.post("/v1/agents/{agent}/lease")
@call("receive", body=Lease, answers={200: LeasedMessages}, errors=(Busy, RateLimited))
async def lease(request: web.Request) -> web.Response:
    """Lease messages: exactly those that are returned. Empty when there are none in `wait_s`."""
    who = identity(request)
    address = own_agent(request, who)
    wanted = await body(request, Lease)
    hub = request.app[HUB]
    until, asked_ms = time.monotonic() + wanted.wait_s, hub.store.clock.now_ms()
    leased = await _take(hub, address, wanted, asked_ms)
    if not leased and wanted.wait_s > 0:
        with request.app[WAITS].one_more(who):
            leased = await _wait_for_mail(request, address, wanted, asked_ms, until)
    if leased and has_gone(request):
        hub.spawn(_give_back(hub, address, {row.entry: token for row, token in leased}))
        leased = []
    hub.metrics.delivered += len(leased)
    return json({"messages": [_delivery(row, token) for row, token in leased]})


async def _take(
    hub: Hub, address: str, wanted: Lease, asked_ms: int, waited: bool = False
) -> list[tuple[Taken, LockToken]]:
    ack_timeout_ms = max(1, int(wanted.ack_timeout_s * 1_000))
    return await hub.store.leases.take(
        address, wanted.max, wanted.types or None, ack_timeout_ms, wanted.consumer, asked_ms, waited
    )


async def _wait_for_mail(
    request: web.Request, address: str, wanted: Lease, asked_ms: int, until: float
) -> list[tuple[Taken, LockToken]]:
    """Waits like a session does: registered, woken through the instance's channel, looking again now and then."""
    hub = request.app[HUB]
    watcher = hub.new_name()
    with hub.waiters.waiting_for(("mail", address), ("replaced", watcher)) as event:
        try:
            while not hub.draining and not has_gone(request):
                event.clear()
                await hub.store.leases.watch(address, watcher, hub.lease_ms)
                leased = await _take(hub, address, wanted, asked_ms, waited=True)
                if leased or until <= time.monotonic():
                    return leased
                await wait_for(event, request, until)
            return []
        finally:
            hub.spawn(hub.leave(address, watcher, "puller"))


async def _give_back(hub: Hub, address: str, entries: dict[str, LockToken]) -> None:
    """What was leased to a caller that is not there any more waits for the next one, uncounted."""
    with suppress(RelayError):  # else its time to be acked brings it back
        await _settle(hub, "release", address, entries)


def _delivery(row: Taken, token: LockToken) -> orjson.Fragment:
    return orjson.Fragment(
        b'{"entry":"%b","seq":%d,"attempt":%d,"was_stored":%b,"lock_token":%b,%b}'
        % (
            row.entry.encode(),
            row.seq,
            row.attempt,
            b"true" if token.was_stored else b"false",
            orjson.dumps(str(token)),
            row.body,
        )
    )


# -- settling


class Ack(Struct):
    lock_token: Token


class Nack(Struct):
    lock_token: Token
    reason: Annotated[str, Meta(max_length=1_024)] = ""
    retry: bool = True
    delay_s: Span | None = None

    def extra(self) -> tuple[Any, ...]:
        return failure(self.reason, self.retry, self.delay_s)


class Release(Struct):
    lock_token: Token


class Touch(Struct):
    lock_token: Token
    extend_s: Span = 30

    def extra(self) -> tuple[Any, ...]:
        return (int(self.extend_s * 1_000),)


class Reply(Struct):
    lock_token: Token
    payload: Raw
    more: bool = False


How = Literal["ack", "nack", "release", "touch"]


async def _settle(
    hub: Hub, how: How, address: str, entries: dict[str, LockToken], extra: tuple[Any, ...] = ()
) -> dict[str, str]:
    """Settles entries of one consumer; what is refused, with its code. Raises StoreUnavailable."""
    done: asyncio.Future[dict[str, str] | None] = asyncio.get_running_loop().create_future()
    token = next(iter(entries.values()))
    settlement = Settlement(
        address,
        token.consumer,
        entries,
        done.set_result,
        began=token.began,
        extra=extra,
        attempts={entry: one.attempt for entry, one in entries.items()},
    )
    getattr(hub.store.mailboxes, how)(settlement)
    refused = await asyncio.shield(done)
    if refused is None:
        raise StoreUnavailable("it may or may not be settled; the same again is safe")
    hub.metrics.settled[how] += len(entries) - len(refused)
    return refused


async def _settle_one(
    request: web.Request, how: How, address: str, token: str, extra: tuple[Any, ...] = ()
) -> web.Response:
    entry = request.match_info["entry"]
    refused = await _settle(request.app[HUB], how, address, {entry: LockToken.parse(token, entry)}, extra)
    if refused:
        raise not_held(next(iter(refused.values())))
    return json({"entry": entry, "settled": how})


@routes.post("/v1/agents/{agent}/entries/{entry}/ack")
@call("receive", body=Ack, answers={200: SettledEntry}, errors=(LockLost, NotFound))
async def ack(request: web.Request) -> web.Response:
    """Done: the message is removed."""
    address = own_agent(request, identity(request))
    sent = await body(request, Ack)
    return await _settle_one(request, "ack", address, sent.lock_token)


@routes.post("/v1/agents/{agent}/entries/{entry}/nack")
@call("receive", body=Nack, answers={200: SettledEntry}, errors=(LockLost, NotFound))
async def nack(request: web.Request) -> web.Response:
    """Failed: counted, and redelivered later or buried."""
    address = own_agent(request, identity(request))
    sent = await body(request, Nack)
    return await _settle_one(request, "nack", address, sent.lock_token, sent.extra())


@routes.post("/v1/agents/{agent}/entries/{entry}/release")
@call("receive", body=Release, answers={200: SettledEntry}, errors=(LockLost, NotFound))
async def release(request: web.Request) -> web.Response:
    """Not now: redelivered at once, not counted."""
    address = own_agent(request, identity(request))
    sent = await body(request, Release)
    return await _settle_one(request, "release", address, sent.lock_token)


@routes.post("/v1/agents/{agent}/entries/{entry}/touch")
@call("receive", body=Touch, answers={200: SettledEntry}, errors=(LockLost, NotFound))
async def touch(request: web.Request) -> web.Response:
    """Still working: the lease is moved on."""
    address = own_agent(request, identity(request))
    sent = await body(request, Touch)
    return await _settle_one(request, "touch", address, sent.lock_token, sent.extra())


@routes.post("/v1/agents/{agent}/entries/{entry}/reply")
@call("receive", body=Reply, answers={200: SettledEntry}, errors=(LockLost, NotFound, RateLimited))
async def reply(request: web.Request) -> web.Response:
    """Answer a request, and ack it unless there is more to come."""
    address, entry, hub = own_agent(request, identity(request)), request.match_info["entry"], request.app[HUB]
    sent = await body(request, Reply)
    token, payload = LockToken.parse(sent.lock_token, entry), opaque(sent.payload, hub.settings.max_payload_bytes)
    granted, retry_after_ms = await spend(hub.store, address, 1)
    if not granted:
        raise not_granted(granted, retry_after_ms)
    done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    hub.store.replies.reply(
        address, token.consumer, token.began, entry, payload, sent.more, done.set_result, token.attempt
    )
    word = await asyncio.shield(done)
    if word == "not_a_request":
        raise Malformed("the entry is not a request")
    if word == "unavailable":
        raise StoreUnavailable("it may or may not be answered; the same again is safe")
    if word != "replied":
        raise not_held(word)
    hub.metrics.settled["reply"] += 1
    return json({"entry": entry, "settled": "reply"})


class EntryAck(Ack):
    entry: Entry


class EntryNack(Nack, kw_only=True):
    entry: Entry


class EntryRelease(Release):
    entry: Entry


class EntryTouch(Touch, kw_only=True):
    entry: Entry


Few = Meta(max_length=MAX_ENTRIES_PER_FRAME)


class Settle(Struct):
    """Many at once, each with its own token."""

    ack: Annotated[list[EntryAck], Few] = []
    nack: Annotated[list[EntryNack], Few] = []
    release: Annotated[list[EntryRelease], Few] = []
    touch: Annotated[list[EntryTouch], Few] = []


@routes.post("/v1/agents/{agent}/settle")
@call("receive", body=Settle, answers={200: SettledEntries})
async def settle(request: web.Request) -> web.Response:
    """Settle many entries; one that cannot be does not hurt the others."""
    address, hub = own_agent(request, identity(request)), request.app[HUB]
    sent = await body(request, Settle)
    groups: dict[tuple[How, str, tuple[Any, ...]], dict[str, LockToken]] = defaultdict(dict)
    named: tuple[tuple[How, list[Any]], ...] = (
        *(("ack", sent.ack), ("nack", sent.nack)),
        *(("release", sent.release), ("touch", sent.touch)),
    )
    for how, items in named:
        for item in items:
            token = LockToken.parse(item.lock_token, item.entry)
            extra = item.extra() if isinstance(item, Nack | Touch) else ()
            groups[how, f"{token.consumer}/{token.asked_ms}", extra][item.entry] = token
    results = await asyncio.gather(
        *(_settle(hub, how, address, entries, extra) for (how, _, extra), entries in groups.items()),
        return_exceptions=True,
    )
    settled: list[str] = []
    refused: list[dict[str, Any]] = []
    for entries, result in zip(groups.values(), results, strict=True):
        if isinstance(result, RelayError):
            refused += [{"entry": entry, **result.as_fields()} for entry in entries]
        elif isinstance(result, BaseException):
            raise result
        else:
            settled += [entry for entry in entries if entry not in result]
            refused += [{"entry": entry, **not_held(code).as_fields()} for entry, code in result.items()]
    return json({"settled": settled, "refused": refused})
