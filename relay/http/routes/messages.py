"""Messages: send, look up, cancel, list a mailbox."""

import secrets
from typing import Annotated, Any, Literal
from urllib.parse import quote

import msgspec
import orjson
from aiohttp import web
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from relay.auth import Identity
from relay.core.intake import SendResult, checked, send_all, send_one
from relay.errors import Busy, Malformed, NotFound, QueueFull, RateLimited, RelayError, UnknownAgent
from relay.http.app_keys import INSTANCE, LONG_POLLS
from relay.http.auth import (
    agent_in_path,
    agent_to_look_at,
    identity,
    may_name_senders,
    sender_asked_for,
    sender_to_look_for,
)
from relay.http.body import read_text
from relay.http.did_you_mean import check_names
from relay.http.operation import operation
from relay.http.query import Page, Query, SenderQuery, read_query
from relay.http.responses import json_response
from relay.http.routes.tasks import wait_for_end
from relay.http.schemas.errors import ErrorFields, error_fields
from relay.http.schemas.fields import doc
from relay.http.schemas.messages import (
    Accepted,
    BatchAnswer,
    Cancelled,
    Located,
    MailboxMessage,
    MailboxPage,
    TaskState,
)
from relay.http.schemas.outgoing import MANY, Batch, Outgoing
from relay.protocol.address import address, tenant_of
from relay.protocol.entry import parse_entry
from relay.protocol.message import Message
from relay.store.agents.rates import LIST
from relay.store.mailbox.lookup import PeekedMessage, Waiting
from relay.store.record.body import readable_payload
from relay.telemetry.tracing import in_trace

routes = web.RouteTableDef()

IGNORED = ("from",)  # the sender is who authenticated
LANES = tuple(str(number) for number in range(1, 11))


class SendQuery(Query):
    wait_s: (
        Annotated[float, Meta(ge=0, le=60), doc("Makes the message a request, and waits so long for its reply.", 30)]
        | UnsetType
    ) = UNSET


class PeekQuery(Page):
    state: Annotated[Literal["queued", "held", "delayed"] | None, doc("Only messages in this state.", "held")] = None
    type: Annotated[str, Meta(max_length=128), doc("Only messages of this type.", "job")] | None = None
    sender: Annotated[str, Meta(max_length=129), doc("Only messages from this agent.", "alice")] | None = field(
        name="from", default=None
    )


class _Raws(Struct):
    """A batch whose messages are checked one by one, so that a bad one does not affect the others."""

    messages: Annotated[list[Raw], MANY]


@routes.post("/v1/agents/{agent}/messages")
@operation(
    "send",
    query=SendQuery,
    body=(Outgoing, Batch),
    answers={200: TaskState, 202: (Accepted, BatchAnswer, TaskState)},
    errors=(UnknownAgent, QueueFull, RateLimited),
    headers=(("traceparent", "The trace that the message belongs to; it reaches the recipient in `headers`."),),
    price=0,
)
async def send(request: web.Request) -> web.StreamResponse:
    """Send a message, or many.

    Many are `{"messages": […]}`. With `wait_s` a message is a request, and its reply is waited for.
    """
    instance, who = request.app[INSTANCE], identity(request)
    to = agent_in_path(request, who)
    wait_s = read_query(request, SendQuery).wait_s
    text = await read_text(request)
    fields = _object(text)
    if "messages" in fields and "payload" not in fields:
        check_names(fields, ("messages",), "field of a batch")
        if wait_s is not UNSET:
            raise Malformed("wait_s: only for a single message")
        return await _send_batch(request, who, to, text)
    message = _message(request, who, to, fields, is_request=wait_s is not UNSET)
    if wait_s is UNSET:
        return json_response(
            _accepted(request, to, await send_one(instance.store, instance.metrics, who, message)), status=202
        )
    with request.app[LONG_POLLS].slot(who):
        await send_one(instance.store, instance.metrics, who, message)
        return await _wait(request, who, message, wait_s)


async def _send_batch(request: web.Request, who: Identity, to: str, text: str) -> web.Response:
    instance = request.app[INSTANCE]
    try:
        raws = msgspec.json.decode(text, type=_Raws).messages
    except msgspec.DecodeError as error:
        raise Malformed(str(error)[:300]) from None
    messages: list[Message] = []
    refused: list[ErrorFields] = []
    for raw in raws:
        try:
            messages.append(_message(request, who, to, _object(bytes(raw).decode())))
        except RelayError as error:
            instance.metrics.refused[error.code] += 1
            refused.append(error_fields(error, to=to))
    answers = await send_all(instance.store, instance.metrics, who, messages) if messages else []
    accepted = [_accepted(request, to, answer) for answer in answers if isinstance(answer, SendResult)]
    for message, answer in zip(messages, answers, strict=True):
        if isinstance(answer, RelayError):
            refused.append(error_fields(answer, id=message.id, to=to))
    return json_response(BatchAnswer(accepted, refused), status=202)


def _object(text: str) -> dict[str, Raw]:
    try:
        return msgspec.json.decode(text, type=dict[str, Raw])
    except (msgspec.DecodeError, RecursionError) as error:
        raise Malformed(f"expected a JSON object: {error}"[:300]) from None


def _message(request: web.Request, who: Identity, to: str, fields: dict[str, Raw], is_request: bool = False) -> Message:
    """The message that a body stands for: its recipient comes from the path, its id may be ours."""
    check_names(fields, (*Outgoing.__struct_fields__, *IGNORED, "to"), "field of a message")
    if "to" in fields:
        _check_recipient(fields["to"], to)
    known: dict[str, Any] = {name: orjson.Fragment(bytes(value)) for name, value in fields.items()}
    known["to"] = to
    known.setdefault("id", secrets.token_hex(16))
    known.setdefault("receipt", False)
    if is_request:
        known["request"] = True
    message = checked(Raw(orjson.dumps(known)), who, request.app[INSTANCE].settings.max_payload_bytes)
    return in_trace(message, request.headers)


def _check_recipient(written: Raw, to: str) -> None:
    """A body may repeat the recipient of the path. If it names another one, it is not known who was meant."""
    try:
        named = address(msgspec.json.decode(written, type=str), tenant_of(to))
    except msgspec.DecodeError:
        raise Malformed("to: expected an address, or nothing: the recipient is in the path") from None
    if named != to:
        raise Malformed(f"to: the body names {named}, and the path {to}; leave it out")


def _accepted(request: web.Request, to: str, answer: SendResult) -> Accepted:
    return Accepted(
        id=answer.id,
        to=to,
        state=answer.state,
        duplicate=answer.duplicate,
        durability=request.app[INSTANCE].store.level(),
        seq=UNSET if answer.seq is None else answer.seq,
    )


async def _wait(request: web.Request, who: Identity, message: Message, wait_s: float) -> web.Response:
    task = await wait_for_end(request, who.address, message.id, who.until(wait_s))
    if task.state == "replied":
        return json_response(task)
    return json_response(task, status=202, Location=f"/v1/tasks/{quote(message.id, safe='')}")


@routes.get("/v1/agents/{agent}/messages/{id:[^/]+}")
@operation("send", "inspect", query=SenderQuery, answers={200: Located}, errors=(NotFound,))
async def where(request: web.Request) -> web.Response:
    """Locate a message.

    For its sender, or with `from` for an admin and for the scope `inspect`.
    """
    who = identity(request)
    to = agent_in_path(request, who)
    asked = read_query(request, SenderQuery)
    sender = sender_to_look_for(asked.sender, who, tenant_of(to))
    message_id = request.match_info["id"]
    status = await request.app[INSTANCE].store.lookup.where(sender, to, message_id)
    if status is None:
        raise NotFound(_not_found(asked.sender, who))
    located = Located(
        id=message_id,
        to=to,
        sender=sender,
        state=status.state,
        entry=status.entry,
        attempt=max(1, status.attempt),
        at_ms=status.at_ms,
    )
    if status.waiting is not None:
        _explain(located, status.waiting)
        located.max_attempts = status.max_attempts or UNSET
    return json_response(located)


def _not_found(named: str | None, who: Identity) -> str:
    if named is None and may_name_senders(who):
        return f"no such message from {who.address}, or it ended long ago; ?from= names another sender"
    return "no such message, or it ended long ago"


def _explain(shown: Located | MailboxMessage, waiting: Waiting) -> None:
    """Why a message is not delivered yet, as far as that is known."""
    shown.why, shown.holder = waiting.why, waiting.holder or UNSET
    shown.until_ms = UNSET if waiting.until_ms is None else waiting.until_ms
    shown.held_since_ms = UNSET if waiting.held_since_ms is None else waiting.held_since_ms


@routes.delete("/v1/agents/{agent}/messages/{id:[^/]+}")
@operation("send", query=SenderQuery, answers={200: Cancelled}, errors=(NotFound, Busy), price=LIST)
async def cancel(request: web.Request) -> web.Response:
    """Cancel a message.

    Takes back what nobody holds.
    """
    who = identity(request)
    to = agent_in_path(request, who)
    message_id = request.match_info["id"]
    sender = sender_asked_for(read_query(request, SenderQuery).sender, who, tenant_of(to))
    word = await request.app[INSTANCE].store.lookup.cancel(sender, to, message_id, who.address)
    if word == "not_found":
        raise NotFound("no such message in the mailbox")
    if word == "held":
        raise Busy("somebody holds the message")
    return json_response(Cancelled(message_id))


@routes.get("/v1/agents/{agent}/messages")
@operation("receive", "inspect", query=PeekQuery, answers={200: MailboxPage}, price=LIST)
async def peek(request: web.Request) -> web.Response:
    """Look into a mailbox.

    Nothing is leased. Payloads only with the scope `inspect`.
    """
    who = identity(request)
    asked = read_query(request, PeekQuery)
    with_payload = "inspect" in who.scopes
    agent = agent_to_look_at(request, who)
    following, seen = await request.app[INSTANCE].store.lookup.peek(
        agent,
        mailbox_cursor(asked.cursor),
        asked.limit,
        asked.state or "",
        asked.type,
        with_payload,
        asked.sender and address(asked.sender.replace("~", "/", 1), tenant_of(agent)),
    )
    cursor = f"{following[0]}:{following[1]}" if following is not None else UNSET
    return json_response(MailboxPage([_shown(message, with_payload) for message in seen], cursor))


def mailbox_cursor(cursor: str | None) -> tuple[int, str]:
    """The lane, and behind which entry of it. Raises Malformed."""
    lane, _, after = (cursor or "1:").partition(":")
    if lane not in LANES or (after and ("p" in after or parse_entry(after) is None)):
        raise Malformed("cursor: expected one that came with a page")
    return int(lane), after


def _shown(message: PeekedMessage, with_payload: bool) -> MailboxMessage:
    head = message.head
    payload = readable_payload(message.body, head.bytes) if with_payload else None
    shown = MailboxMessage(
        entry=message.entry,
        id=head.id,
        to=head.to,
        sender=head.sender,
        state=message.state,
        attempt=message.attempt,
        seq=message.seq,
        priority=head.priority,
        bytes=head.bytes,
        sent_at_ms=message.accepted_at_ms,
        expires_at_ms=message.expires_at_ms,
        type=head.type or UNSET,
        thread=head.thread or UNSET,
        why=message.waiting.why,
        payload=UNSET if payload is None else Raw(payload),
    )
    _explain(shown, message.waiting)
    return shown
