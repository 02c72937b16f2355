"""Messages: send, ask where one is, take it back, look into a mailbox."""

import secrets
import time
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
import orjson
from aiohttp import web
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from relay.auth import Identity
from relay.errors import Busy, Malformed, NotFound, QueueFull, RateLimited, RelayError, UnknownAgent
from relay.http.answers import Accepted, BatchAnswer, Cancelled, Located, SeenPage, TaskState
from relay.http.calls import call
from relay.http.door import (
    HUB,
    WAITS,
    agent_in_path,
    agent_to_look_at,
    identity,
    json,
    read,
    sender_asked_for,
)
from relay.http.parameters import CURSOR, FROM, LIMIT, Choice, Number, Text
from relay.http.tasks import wait_for_end
from relay.protocol import MAX_MESSAGES_PER_FRAME, Message, parse_entry
from relay.sending import Accepted as Sent
from relay.sending import checked, send_all
from relay.store.events import unescape
from relay.store.whereabouts import Seen

routes = web.RouteTableDef()

WAIT_S = Number("wait_s", 0, 60, "Makes the message a request, and waits so long for its reply.")
STATE = Choice("state", ("queued", "held", "delayed"), "Only messages in this state.")
TYPE = Text("type", "Only messages of this type.", 128)
LANES = tuple(str(number) for number in range(1, 11))
Many = Meta(min_length=1, max_length=MAX_MESSAGES_PER_FRAME)


def _outgoing() -> type[Struct]:
    """M of a send as HTTP takes it: the recipient is in the path, the id may be the relay's, a receipt is asked for."""
    fields: list[Any] = []
    for field in msgspec.structs.fields(Message):
        if field.name == "id":
            fields.append(("id", field.type | UnsetType, UNSET))
        elif field.name == "receipt":
            fields.append(("receipt", field.type, False))
        elif field.name != "to":
            fields.append((field.name, field.type, *(() if field.required else (field.default,))))
    return msgspec.defstruct("Outgoing", fields, kw_only=True)


Outgoing = _outgoing()
Batch = msgspec.defstruct("Batch", [("messages", Annotated[list[Outgoing], Many])])  # type: ignore[valid-type]


class _Raws(Struct):
    """A batch whose messages are checked one by one, so that a bad one does not hurt its neighbours."""

    messages: Annotated[list[Raw], Many]


@routes.post("/v1/agents/{agent}/messages")
@call(
    "send",
    query=(WAIT_S,),
    body=(Outgoing, Batch),
    answers={200: TaskState, 202: (Accepted, BatchAnswer, TaskState)},
    errors=(UnknownAgent, QueueFull, RateLimited),
)
async def send(request: web.Request) -> web.StreamResponse:
    """Send one message, or `{"messages": […]}`. With `wait_s` it is a request, and its reply is waited for."""
    who = identity(request)
    to = agent_in_path(request, who)
    wait_s = WAIT_S.of(request)
    text = await read(request)
    fields = _object(text)
    if "messages" in fields and "payload" not in fields:
        if wait_s is not None:
            raise Malformed("wait_s: only for a single message")
        return await _send_batch(request, who, to, text)
    message = _message(request, who, to, fields, is_request=wait_s is not None)
    if wait_s is None:
        return json(_accepted(request, to, await _send_one(request, who, message)), status=202)
    with request.app[WAITS].one_more(who):
        await _send_one(request, who, message)
        return await _wait(request, who, message, wait_s)


async def _send_one(request: web.Request, who: Identity, message: Message) -> Sent:
    hub = request.app[HUB]
    (answer,) = await send_all(hub.store, hub.metrics, who, [message])
    if isinstance(answer, RelayError):
        raise answer
    return answer


async def _send_batch(request: web.Request, who: Identity, to: str, text: str) -> web.Response:
    hub = request.app[HUB]
    try:
        raws = msgspec.json.decode(text, type=_Raws).messages
    except msgspec.DecodeError as error:
        raise Malformed(str(error)[:300]) from None
    messages: list[Message] = []
    refused: list[dict[str, Any]] = []
    for raw in raws:
        try:
            messages.append(_message(request, who, to, _object(bytes(raw).decode())))
        except RelayError as error:
            hub.metrics.refused[error.code] += 1
            refused.append({"to": to, **error.as_fields()})
    answers = await send_all(hub.store, hub.metrics, who, messages) if messages else []
    accepted = [_accepted(request, to, one) for one in answers if isinstance(one, Sent)]
    for message, one in zip(messages, answers, strict=True):
        if isinstance(one, RelayError):
            refused.append({"id": message.id, "to": to, **one.as_fields()})
    return json({"accepted": accepted, "refused": refused}, status=202)


def _object(text: str) -> dict[str, Raw]:
    try:
        return msgspec.json.decode(text, type=dict[str, Raw])
    except (msgspec.DecodeError, RecursionError) as error:
        raise Malformed(f"expected a JSON object: {error}"[:300]) from None


def _message(request: web.Request, who: Identity, to: str, fields: dict[str, Raw], is_request: bool = False) -> Message:
    """The message that a body stands for: its recipient comes from the path, its id may be ours."""
    known: dict[str, Any] = {name: orjson.Fragment(bytes(value)) for name, value in fields.items()}
    known["to"] = to
    known.setdefault("id", secrets.token_hex(16))
    known.setdefault("receipt", False)
    if is_request:
        known["request"] = True
    return checked(Raw(orjson.dumps(known)), who, request.app[HUB].settings.max_payload_bytes)


def _accepted(request: web.Request, to: str, answer: Sent) -> dict[str, Any]:
    fields = {
        "id": answer.id,
        "to": to,
        "state": answer.state,
        "duplicate": answer.duplicate,
        "durability": request.app[HUB].store.level(),
    }
    return fields if answer.seq is None else fields | {"seq": answer.seq}


async def _wait(request: web.Request, who: Identity, message: Message, wait_s: float) -> web.Response:
    found = await wait_for_end(request, who.address, message.id, time.monotonic() + wait_s)
    if found["state"] == "replied":
        return json(found)
    return json(found, status=202, Location=f"/v1/tasks/{quote(message.id, safe='')}")


@routes.get("/v1/agents/{agent}/messages/{id:[^/]+}")
@call("send", query=(FROM,), answers={200: Located}, errors=(NotFound,))
async def where(request: web.Request) -> web.Response:
    """Where a message is: its sender's question, or an admin's with `from`."""
    who = identity(request)
    to = agent_in_path(request, who)
    sender = sender_asked_for(request, who, to.partition("/")[0])
    message_id = request.match_info["id"]
    found = await request.app[HUB].store.looks.where(sender, to, message_id)
    if found is None:
        raise NotFound("no such message, or it ended long ago")
    return json(
        {
            "id": message_id,
            "to": to,
            "from": sender,
            "state": found.state,
            "entry": found.entry,
            "attempt": max(1, found.attempt),
            "at_ms": found.at_ms,
        }
    )


@routes.delete("/v1/agents/{agent}/messages/{id:[^/]+}")
@call("send", query=(FROM,), answers={200: Cancelled}, errors=(NotFound, Busy))
async def cancel(request: web.Request) -> web.Response:
    """Take a message back that nobody holds."""
    who = identity(request)
    to = agent_in_path(request, who)
    message_id = request.match_info["id"]
    sender = sender_asked_for(request, who, to.partition("/")[0])
    word = await request.app[HUB].store.looks.cancel(sender, to, message_id)
    if word == "not_found":
        raise NotFound("no such message in the mailbox")
    if word == "held":
        raise Busy("somebody holds the message")
    return json({"id": message_id, "state": "cancelled"})


@routes.get("/v1/agents/{agent}/messages")
@call("receive", "inspect", query=(STATE, TYPE, CURSOR, LIMIT), answers={200: SeenPage})
async def peek(request: web.Request) -> web.Response:
    """What is in a mailbox, without leasing it. Payloads only with the scope `inspect`."""
    who = identity(request)
    following, seen = await request.app[HUB].store.looks.peek(
        agent_to_look_at(request, who),
        _cursor(request),
        LIMIT.of(request),
        STATE.of(request) or "",
        TYPE.of(request),
    )
    answer: dict[str, Any] = {"messages": [_shown(one, "inspect" in who.scopes) for one in seen]}
    if following is not None:
        answer["cursor"] = f"{following[0]}:{following[1]}"
    return json(answer)


def _cursor(request: web.Request) -> tuple[int, str]:
    """The lane, and behind which entry of it."""
    lane, _, after = (CURSOR.of(request) or "1:").partition(":")
    if lane not in LANES or (after and ("p" in after or parse_entry(after) is None)):
        raise Malformed("cursor: expected one that came with a page")
    return int(lane), after


def _shown(one: Seen, with_payload: bool) -> dict[str, Any]:
    tenant, to, sender, message_id, kind, thread, priority, size = one.head.split("\t")
    seq, accepted_at, expires_at, *_ = one.opts.split("\t")
    fields: dict[str, Any] = {
        "entry": one.entry,
        "id": message_id,
        "to": f"{tenant}/{to}",
        "from": f"{tenant}/{sender}",
        "state": one.state,
        "attempt": one.attempt,
        "seq": int(seq),
        "priority": int(priority),
        "bytes": int(size),
        "sent_at_ms": int(accepted_at),
        "expires_at_ms": int(expires_at),
    }
    if kind:
        fields["type"] = unescape(kind)
    if thread:
        fields["thread"] = unescape(thread)
    if one.holder:
        fields["holder"] = one.holder
    if with_payload:
        fields["payload"] = payload_of(one.body)
    return fields


def payload_of(body: bytes) -> orjson.Fragment:
    """The payload in the static part of a delivery, as the sender wrote it."""
    found = msgspec.json.decode(b"{" + body + b"}", type=_Payload)
    return orjson.Fragment(bytes(found.payload))


class _Payload(Struct):
    payload: Raw
