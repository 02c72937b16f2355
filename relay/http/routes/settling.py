"""Settling: workers settle what they leased. The lock token proves that they hold it."""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import Annotated, Any

from aiohttp import web
from msgspec import Meta, field

from relay.core.instance.instance import Instance
from relay.core.intake import maybe_settled, no_more_parts, not_granted, not_held, pay, spend
from relay.core.lifecycle import is_followed, note_settled, recall
from relay.errors import (
    LockLost,
    Malformed,
    NotFound,
    QueueFull,
    RateLimited,
    RelayError,
    StoreUnavailable,
    TooLarge,
)
from relay.http.app_keys import INSTANCE
from relay.http.auth import identity, own_agent
from relay.http.body import RequestBody, read_body
from relay.http.operation import operation
from relay.http.responses import json_response
from relay.http.schemas.fields import Payload, doc
from relay.http.schemas.leases import RefusedEntry, SettledEntries, SettledEntry
from relay.protocol.frames import MAX_ENTRIES_PER_FRAME
from relay.protocol.message import Span, opaque
from relay.store.agents.rates import SETTLING
from relay.store.callbacks import answer_to
from relay.store.mailbox.leases import LockToken
from relay.store.mailbox.settle import Extra, How, Refusals, ReplyStep, Settlement, failure

routes = web.RouteTableDef()

Token = Annotated[
    str,
    Meta(max_length=300),
    doc("The token that came with the lease.", "1.1800000000200.1800000000123-0.http.w1.5f0c2a9d"),
]
Confirm = Annotated[bool, doc("As over WebSocket; here every settlement is answered anyway.", True)]
Entry = Annotated[str, Meta(min_length=1, max_length=64), doc("The entry to settle.", "1800000000123-0")]


class Ack(RequestBody):
    """Done."""

    lock_token: Token
    confirm: Confirm = False


class Nack(RequestBody):
    """Failed."""

    lock_token: Token
    confirm: Confirm = False
    reason: Annotated[str, Meta(max_length=1_024), doc("Why, for whoever looks later.", "cannot parse")] = ""
    retry: Annotated[bool, doc("Whether it is delivered again; false: it is dead at once.", True)] = True
    delay_s: Annotated[Span | None, doc("How long until then, in seconds; left out: longer each time.", 10)] = None

    def extra(self) -> tuple[Any, ...]:
        return failure(self.reason, self.retry, self.delay_s)


class Release(RequestBody):
    """Not now."""

    lock_token: Token
    confirm: Confirm = False


class Touch(RequestBody):
    """Still working."""

    lock_token: Token
    confirm: Confirm = False
    extend_s: Annotated[Span, doc("How long the lease lasts from now, in seconds.", 60)] = 30

    def extra(self) -> tuple[Any, ...]:
        return (int(self.extend_s * 1_000),)


class Reply(RequestBody):
    """An answer."""

    lock_token: Token
    payload: Annotated[Payload, doc("The answer; any JSON value.", {"sum": 4})]
    confirm: Confirm = False
    more: Annotated[bool, doc("Whether more answers follow; the last one acks the request.", False)] = False


async def settle_entries(
    instance: Instance, how: How, address: str, entries: dict[str, LockToken], extra: Extra = ()
) -> dict[str, str]:
    """Settles entries of one consumer; what is refused, with its code. Raises StoreUnavailable."""
    first = next(iter(entries.values()))
    attempts = {entry: token.attempt for entry, token in entries.items()}

    def ask(answer: Callable[[Refusals | None], None]) -> None:
        instance.store.settling.settle(
            Settlement(
                *(how, address, first.consumer, list(entries), answer),
                backlog_end=first.backlog_end,
                extra=extra,
                attempts=attempts,
            )
        )

    if is_followed():
        await recall(instance.store, address, entries)
    refused = await answer_to(ask)
    if refused is None:
        raise maybe_settled()
    acked = [token for entry, token in entries.items() if how == "ack" and entry not in refused]
    held_s = [token.held_ms(instance.store.clock.now_ms()) / 1_000 for token in acked]
    note_settled(instance.metrics, how, address, entries.keys(), refused, held_s)
    return refused


async def _settle_one(request: web.Request, how: How, address: str, token: str, extra: Extra = ()) -> web.Response:
    entry = request.match_info["entry"]
    refused = await settle_entries(request.app[INSTANCE], how, address, {entry: LockToken.parse(token, entry)}, extra)
    if refused:
        raise not_held(next(iter(refused.values())))
    return json_response(SettledEntry(entry, how))


@routes.post("/v1/agents/{agent}/entries/{entry}/ack")
@operation("receive", body=Ack, answers={200: SettledEntry}, errors=(LockLost, NotFound), price=SETTLING["ack"])
async def ack(request: web.Request) -> web.Response:
    """Ack a message.

    Done: the message is removed.
    """
    address = own_agent(request, identity(request))
    sent = await read_body(request, Ack)
    return await _settle_one(request, "ack", address, sent.lock_token)


@routes.post("/v1/agents/{agent}/entries/{entry}/nack")
@operation("receive", body=Nack, answers={200: SettledEntry}, errors=(LockLost, NotFound), price=SETTLING["nack"])
async def nack(request: web.Request) -> web.Response:
    """Nack a message.

    Failed: it is counted, and redelivered later or dead.
    """
    address = own_agent(request, identity(request))
    sent = await read_body(request, Nack)
    return await _settle_one(request, "nack", address, sent.lock_token, sent.extra())


@routes.post("/v1/agents/{agent}/entries/{entry}/release")
@operation("receive", body=Release, answers={200: SettledEntry}, errors=(LockLost, NotFound), price=SETTLING["release"])
async def release(request: web.Request) -> web.Response:
    """Release a message.

    Not now: it is redelivered at once, and not counted.
    """
    address = own_agent(request, identity(request))
    sent = await read_body(request, Release)
    return await _settle_one(request, "release", address, sent.lock_token)


@routes.post("/v1/agents/{agent}/entries/{entry}/touch")
@operation("receive", body=Touch, answers={200: SettledEntry}, errors=(LockLost, NotFound), price=SETTLING["touch"])
async def touch(request: web.Request) -> web.Response:
    """Extend a lease.

    Still working: the lease lasts longer.
    """
    address = own_agent(request, identity(request))
    sent = await read_body(request, Touch)
    return await _settle_one(request, "touch", address, sent.lock_token, sent.extra())


@routes.post("/v1/agents/{agent}/entries/{entry}/reply")
@operation(
    "receive",
    body=Reply,
    answers={200: SettledEntry},
    errors=(LockLost, NotFound, TooLarge, QueueFull, RateLimited),
    price=0,
)
async def reply(request: web.Request) -> web.Response:
    """Reply to a request.

    The last answer acks it; parts before it have `more`.
    """
    address, entry, instance = own_agent(request, identity(request)), request.match_info["entry"], request.app[INSTANCE]
    sent = await read_body(request, Reply)
    token, payload = LockToken.parse(sent.lock_token, entry), opaque(sent.payload, instance.settings.max_payload_bytes)
    if sent.more:
        instance.store.memory.require()  # the last answer frees its request, a part only adds
    granted, retry_after_ms = await spend(instance.store, address, 1)
    if not granted:
        raise not_granted(granted, retry_after_ms)

    def ask(answer: Callable[[str], None]) -> None:
        holder, backlog_end = token.consumer, token.backlog_end
        step = ReplyStep(address, holder, backlog_end, entry, payload, sent.more, answer, token.attempt)
        instance.store.settling.reply(step)

    if is_followed():
        await recall(instance.store, address, [entry])
    word = await answer_to(ask)
    if word == "not_a_request":
        raise Malformed("the entry is not a request")
    if word == "unavailable":
        raise StoreUnavailable("it may or may not be answered; the same again is safe")
    if word in ("too_large", "outbox_full"):
        raise no_more_parts(word, instance.settings)
    if word != "replied":
        raise not_held(word)
    if not sent.more:  # a part settles nothing
        note_settled(instance.metrics, "reply", address, [entry], {}, ())
    return json_response(SettledEntry(entry, "reply"))


class EntryAck(Ack, kw_only=True):
    """Done, of one entry."""

    entry: Entry


class EntryNack(Nack, kw_only=True):
    """Failed, of one entry."""

    entry: Entry


class EntryRelease(Release, kw_only=True):
    """Not now, of one entry."""

    entry: Entry


class EntryTouch(Touch, kw_only=True):
    """Still working, of one entry."""

    entry: Entry


Few = Meta(max_length=MAX_ENTRIES_PER_FRAME)


class Settle(RequestBody):
    """Many at once, each with its own token."""

    ack: Annotated[list[EntryAck], Few, doc("Done.")] = field(default_factory=list)
    nack: Annotated[list[EntryNack], Few, doc("Failed.")] = field(default_factory=list)
    release: Annotated[list[EntryRelease], Few, doc("Not now.")] = field(default_factory=list)
    touch: Annotated[list[EntryTouch], Few, doc("Still working.")] = field(default_factory=list)


@routes.post("/v1/agents/{agent}/settle")
@operation("receive", body=Settle, answers={200: SettledEntries}, price=0)
async def settle(request: web.Request) -> web.Response:
    """Settle many messages.

    One that cannot be settled does not hurt the others.
    """
    address, instance = own_agent(request, identity(request)), request.app[INSTANCE]
    sent = await read_body(request, Settle)
    groups: dict[tuple[How, str, tuple[Any, ...]], dict[str, LockToken]] = defaultdict(dict)
    named: tuple[tuple[How, list[Any]], ...] = (
        *(("ack", sent.ack), ("nack", sent.nack)),
        *(("release", sent.release), ("touch", sent.touch)),
    )
    await pay(instance.store, address, sum(SETTLING[how] * len(items) for how, items in named))
    for how, items in named:
        for item in items:
            token = LockToken.parse(item.lock_token, item.entry)
            extra = item.extra() if isinstance(item, Nack | Touch) else ()
            groups[how, f"{token.consumer}/{token.asked_ms}", extra][item.entry] = token
    results = await asyncio.gather(
        *(settle_entries(instance, how, address, entries, extra) for (how, _, extra), entries in groups.items()),
        return_exceptions=True,
    )
    settled: list[str] = []
    refused: list[RefusedEntry] = []
    for entries, result in zip(groups.values(), results, strict=True):
        if isinstance(result, RelayError):
            refused += [RefusedEntry(entry, **result.as_fields()) for entry in entries]
        elif isinstance(result, BaseException):
            raise result
        else:
            settled += [entry for entry in entries if entry not in result]
            refused += [RefusedEntry(entry, **not_held(code).as_fields()) for entry, code in result.items()]
    return json_response(SettledEntries(settled, refused))
