"""Acts: select messages of an agent, with a dry run first, and act on them."""

from dataclasses import dataclass
from typing import Any

import msgspec
import orjson
from aiohttp import web
from msgspec import UNSET, Raw, Struct

from relay.auth import Identity
from relay.core.instance.instance import Instance
from relay.core.intake import checked, send_one
from relay.errors import Forbidden, Malformed, RelayError
from relay.http.app_keys import INSTANCE
from relay.http.auth import identity, own_agent
from relay.http.body import read_body
from relay.http.operation import operation
from relay.http.responses import json_response
from relay.http.routes.dead import CODES, box_cursor
from relay.http.routes.messages import mailbox_cursor
from relay.http.schemas.acts import Act, Acted, ActedOn, Choice, Edit
from relay.protocol.address import address, tenant_of
from relay.store.agents.rates import LIST
from relay.store.mailbox.deadletters import UNREADABLE, DeadLetter
from relay.store.mailbox.lookup import PeekedMessage
from relay.store.record.body import is_whole, payload_in, without_payload
from relay.store.record.head import Head

routes = web.RouteTableDef()

PAGE = 100  # messages that are looked at in one call of the store
MOST_LOOKED_AT = 1_000  # in one call of the operation
MAX_ID = 128


@dataclass(frozen=True, slots=True)
class Chosen:
    """A message that may be acted on, from either box."""

    entry: str
    head: Head
    attempts: int
    at_ms: int
    reason: str = ""
    is_held: bool = False
    body: bytes = b""


def fits(one: Chosen, choice: Choice, sender: str | None, now_ms: int) -> bool:
    """Whether a message is one of those that are meant; `sender` is the whole address."""
    age_s = (now_ms - one.at_ms) / 1_000
    return (
        choice.type in (None, one.head.type)
        and sender in (None, one.head.sender)
        and (choice.reason is None or choice.reason in one.reason)
        and (choice.older_than_s is None or age_s > choice.older_than_s)
        and (choice.newer_than_s is None or age_s < choice.newer_than_s)
        and (choice.entries is None or one.entry in choice.entries)
    )


@routes.post("/v1/agents/{agent}/act")
@operation("receive", body=Act, answers={200: Acted}, price=LIST)
async def act(request: web.Request) -> web.Response:
    """Act on many messages.

    Those that fit `where`. A dry run, which is the default, says what would be done. Cancelling and sending again is an
    admin's.
    """
    who = identity(request)
    agent, asked = own_agent(request, who), await read_body(request, Act)
    _check(asked, who)
    instance = request.app[INSTANCE]
    sender = asked.where.sender and address(asked.where.sender.replace("~", "/", 1), tenant_of(agent))
    answer = Acted(act=asked.act, dry_run=asked.dry_run, matched=0, done=0, looked_at=0, messages=[])
    now_ms = instance.store.clock.now_ms()
    cursor, is_over = asked.cursor, False
    while not is_over:
        most = min(PAGE, asked.limit - len(answer.messages))
        cursor, page = await _page(instance, agent, asked, cursor, most)
        chosen = [one for one in page if fits(one, asked.where, sender, now_ms)]
        acted = [_would_be(one) for one in chosen] if asked.dry_run else await _act(instance, who, agent, asked, chosen)
        answer.messages += acted
        answer.looked_at += len(page)
        is_over = cursor is None or len(answer.messages) >= asked.limit or answer.looked_at >= MOST_LOOKED_AT
    answer.cursor = UNSET if cursor is None else cursor
    answer.matched = len(answer.messages)
    answer.done = sum(one.outcome == "done" for one in answer.messages)
    return json_response(answer)


def _check(asked: Act, who: Identity) -> None:
    """Raises Forbidden, Malformed."""
    if asked.act in ("cancel", "resend") and not who.is_admin:
        raise Forbidden(f"to {asked.act} what others have sent is an admin's")
    if asked.act == "resend":
        who.require("send")
    elif asked.edit is not None:
        raise Malformed("edit: only for resend")
    if asked.act == "cancel" and asked.where.reason is not None:
        raise Malformed("reason: what waits in a mailbox has none")


async def _page(
    instance: Instance, agent: str, asked: Act, cursor: str | None, most: int
) -> tuple[str | None, list[Chosen]]:
    """Where to go on, and what is next in the box that the act is about."""
    if asked.act == "cancel":
        return await _mailbox_page(instance, agent, cursor, most)
    return await _dead_page(instance, agent, cursor, most, with_body=asked.act == "resend" and not asked.dry_run)


async def _dead_page(
    instance: Instance, agent: str, cursor: str | None, most: int, with_body: bool
) -> tuple[str | None, list[Chosen]]:
    following, letters = await instance.store.dead_letters.page(agent, box_cursor(cursor), most, with_body)
    return following, [_dead(letter) for letter in letters]


def _dead(letter: DeadLetter) -> Chosen:
    return Chosen(letter.entry, letter.head, letter.attempts, letter.at_ms, letter.reason, body=letter.body)


async def _mailbox_page(
    instance: Instance, agent: str, cursor: str | None, most: int
) -> tuple[str | None, list[Chosen]]:
    following, seen = await instance.store.lookup.peek(agent, mailbox_cursor(cursor), most, "", None, with_body=False)
    return (None if following is None else f"{following[0]}:{following[1]}"), [_waiting(message) for message in seen]


def _waiting(message: PeekedMessage) -> Chosen:
    is_held = message.state == "held"
    return Chosen(message.entry, message.head, message.attempt, message.accepted_at_ms, is_held=is_held)


def _shown(one: Chosen, outcome: str, **new: str) -> ActedOn:
    return ActedOn(
        entry=one.entry,
        id=one.head.id,
        sender=one.head.sender,
        attempts=one.attempts,
        at_ms=one.at_ms,
        outcome=outcome,
        type=one.head.type or UNSET,
        reason=one.reason or UNSET,
        **new,
    )


def _would_be(one: Chosen) -> ActedOn:
    return _shown(one, "busy" if one.is_held else "would_be_done")


# -- doing it


async def _act(instance: Instance, who: Identity, agent: str, asked: Act, chosen: list[Chosen]) -> list[ActedOn]:
    match asked.act:
        case "revive":
            return await _revive(instance, who, agent, chosen)
        case "drop":
            dropped = await instance.store.dead_letters.drop(agent, [one.entry for one in chosen], who.address)
            words = ["done" if is_done else "not_found" for is_done in dropped]
            return [_shown(one, word) for one, word in zip(chosen, words, strict=True)]
        case "cancel":
            return [await _cancel(instance, who, agent, one) for one in chosen]
        case "resend":
            return [await _resend(instance, who, agent, one, asked.edit or Edit()) for one in chosen]


async def _revive(instance: Instance, who: Identity, agent: str, chosen: list[Chosen]) -> list[ActedOn]:
    outcomes = await instance.store.dead_letters.revive(agent, [one.entry for one in chosen], who.address)
    acted = []
    for one, (word, new_entry) in zip(chosen, outcomes, strict=True):
        new = {"new_entry": new_entry} if new_entry else {}
        acted.append(_shown(one, CODES.get(word, "done"), **new))
    return acted


async def _cancel(instance: Instance, who: Identity, agent: str, one: Chosen) -> ActedOn:
    if not one.head.is_known:
        return _shown(one, UNREADABLE)
    word = await instance.store.lookup.cancel(one.head.sender, agent, one.head.id, who.address)
    return _shown(one, {"cancelled": "done", "held": "busy"}.get(word, word))


async def _resend(instance: Instance, who: Identity, agent: str, one: Chosen, edit: Edit) -> ActedOn:
    """Sends a copy from the caller. Its id is derived from the dead letter, so a resend is idempotent."""
    if not one.head.is_known or not is_whole(one.body, one.head.bytes):
        return _shown(one, UNREADABLE)
    new_id = f"{one.head.id[: MAX_ID - len(one.entry) - 1]}~{one.entry}"
    try:
        message = checked(_copy(one, agent, new_id, edit), who, instance.settings.max_payload_bytes)
        sent = await send_one(instance.store, instance.metrics, who, message)
    except RelayError as error:
        return _shown(one, error.code)
    return _shown(one, "duplicate" if sent.duplicate else "done", new_id=new_id)


def _copy(one: Chosen, agent: str, new_id: str, edit: Edit) -> Raw:
    rest = msgspec.json.decode(without_payload(one.body, one.head.bytes), type=_Rest)
    payload = orjson.Fragment(payload_in(one.body, one.head.bytes))
    copy: dict[str, Any] = {"to": agent, "id": new_id, "payload": payload}
    copy |= {"priority": one.head.priority, "receipt": False, "headers": rest.headers}
    copy |= {name: value for name, value in (("type", one.head.type), ("thread", one.head.thread)) if value}
    for name in Edit.__struct_fields__:
        value = getattr(edit, name)
        if value is not UNSET:
            copy[name] = orjson.Fragment(bytes(value)) if isinstance(value, Raw) else value
    copy["headers"] = copy["headers"] | {"copy-of": f"{one.head.sender} {one.head.id}"}
    return Raw(orjson.dumps(copy))


class _Rest(Struct):
    """What a copy keeps of the original body beside the payload."""

    headers: dict[str, str] = {}
