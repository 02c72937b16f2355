"""The dead-letter box: list, revive, drop."""

import re
from typing import Annotated, Literal

from aiohttp import web
from msgspec import UNSET, Meta, Raw, convert, field

from relay.auth import Identity
from relay.errors import Malformed, NotFound
from relay.http.app_keys import INSTANCE
from relay.http.auth import agent_to_look_at, identity, own_agent
from relay.http.body import RequestBody, read_body
from relay.http.operation import operation
from relay.http.query import Page, read_query
from relay.http.responses import json_response
from relay.http.schemas.dead import (
    DeadLetterShown,
    DeadPage,
    Dropped,
    Failure,
    RefusedLetter,
    Revived,
    RevivedEntry,
)
from relay.http.schemas.fields import DeadEntry, doc
from relay.protocol.frames import MAX_ENTRIES_PER_FRAME
from relay.store.agents.rates import LIST
from relay.store.mailbox.deadletters import DeadLetter, DeadLetters
from relay.store.record.body import readable_payload

routes = web.RouteTableDef()

REVIVE_AT_ONCE = 100
_IN_BOX = re.compile(r"\d{1,18}-\d{1,18}", re.ASCII)


@routes.get("/v1/agents/{agent}/dead")
@operation("receive", "inspect", query=Page, answers={200: DeadPage}, price=LIST)
async def listing(request: web.Request) -> web.Response:
    """List dead letters.

    Each with its reason, attempts and history. Payloads only with the scope `inspect`.
    """
    who = identity(request)
    asked = read_query(request, Page)
    after = box_cursor(asked.cursor)
    agent, with_payload = agent_to_look_at(request, who), "inspect" in who.scopes
    following, letters = await request.app[INSTANCE].store.dead_letters.page(agent, after, asked.limit, with_payload)
    cursor = UNSET if following is None else following
    return json_response(DeadPage([_shown(letter, with_payload) for letter in letters], cursor))


def box_cursor(cursor: str | None) -> str:
    """Behind which dead letter to go on. Raises Malformed."""
    if cursor and not _IN_BOX.fullmatch(cursor):
        raise Malformed("cursor: expected one that came with a page")
    return cursor or ""


def _shown(letter: DeadLetter, with_payload: bool) -> DeadLetterShown:
    head = letter.head
    payload = readable_payload(letter.body, head.bytes) if with_payload else None
    return DeadLetterShown(
        entry=letter.entry,
        id=head.id,
        to=head.to,
        sender=head.sender,
        priority=head.priority,
        bytes=head.bytes,
        reason=letter.reason,
        attempts=letter.attempts,
        at_ms=letter.at_ms,
        history=convert(letter.history, list[Failure], from_attributes=True),
        type=head.type or UNSET,
        thread=head.thread or UNSET,
        payload=UNSET if payload is None else Raw(payload),
    )


class Revive(RequestBody):
    """Which dead letters to start again."""

    entries: Annotated[
        list[Annotated[DeadEntry, Meta(max_length=64)]], Meta(max_length=MAX_ENTRIES_PER_FRAME), doc("Those to revive.")
    ] = field(default_factory=list)
    all: Annotated[bool, doc("Whether to revive all of them, instead of `entries`.", False)] = False


@routes.post("/v1/agents/{agent}/dead/revive")
@operation("receive", body=Revive, answers={200: Revived}, price=LIST)
async def revive(request: web.Request) -> web.Response:
    """Revive dead letters.

    Some or all are put into the mailbox again, with no failed attempts.
    """
    who = identity(request)
    agent, letters = own_agent(request, who), request.app[INSTANCE].store.dead_letters
    sent = await read_body(request, Revive)
    if bool(sent.entries) == sent.all:
        raise Malformed("Expected either entries or all")
    outcomes = await _revive_all(letters, agent, who) if sent.all else await _revive(letters, agent, sent.entries, who)
    revived = [RevivedEntry(entry, new) for entry, (word, new) in outcomes.items() if word == "revived"]
    refused = [RefusedLetter(entry, CODES[word]) for entry, (word, _) in outcomes.items() if word in CODES]
    return json_response(Revived(revived, refused))


Refusal = Literal["queue_full", "duplicate", "not_found", "unreadable"]
CODES: dict[str, Refusal] = {
    "full": "queue_full",
    "duplicate": "duplicate",
    "not_found": "not_found",
    "unreadable": "unreadable",
}
Outcomes = dict[str, tuple[str, str]]


async def _revive(letters: DeadLetters, agent: str, entries: list[str], who: Identity) -> Outcomes:
    outcomes: Outcomes = dict.fromkeys(entries, ("not_found", ""))
    known = [entry for entry in outcomes if _IN_BOX.fullmatch(entry)]
    return outcomes | dict(zip(known, await letters.revive(agent, known, who.address), strict=True))


async def _revive_all(letters: DeadLetters, agent: str, who: Identity) -> Outcomes:
    """Page by page, until the box is through or the mailbox full."""
    outcomes: Outcomes = {}
    following: str | None = ""
    while following is not None:
        following, page = await letters.page(agent, following, REVIVE_AT_ONCE)
        some = await _revive(letters, agent, [letter.entry for letter in page], who)
        outcomes |= some
        if any(word == "full" for word, _ in some.values()):
            break
    return outcomes


@routes.delete("/v1/agents/{agent}/dead/{entry}")
@operation("receive", answers={200: Dropped}, errors=(NotFound,), price=LIST)
async def drop(request: web.Request) -> web.Response:
    """Drop a dead letter.

    It is removed for good.
    """
    who = identity(request)
    agent, entry = own_agent(request, who), request.match_info["entry"]
    letters = request.app[INSTANCE].store.dead_letters
    if not _IN_BOX.fullmatch(entry) or not all(await letters.drop(agent, [entry], who.address)):
        raise NotFound("no such dead letter")
    return json_response(Dropped(entry))
