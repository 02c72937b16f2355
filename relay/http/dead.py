"""The dead-letter box: look, revive, drop."""

import re
from typing import Annotated, Any

from aiohttp import web
from msgspec import Meta, Struct

from relay.errors import Malformed, NotFound
from relay.http.answers import DeadPage, Dropped, Revived
from relay.http.calls import call
from relay.http.door import HUB, agent_to_look_at, body, identity, json, own_agent
from relay.http.messages import payload_of
from relay.http.parameters import CURSOR, LIMIT
from relay.protocol import MAX_ENTRIES_PER_FRAME
from relay.store.deadletters import DeadLetter, DeadLetters
from relay.store.events import unescape

routes = web.RouteTableDef()

REVIVE_AT_ONCE = 100
_IN_BOX = re.compile(r"\d{1,18}-\d{1,18}", re.ASCII)


@routes.get("/v1/agents/{agent}/dead")
@call("receive", "inspect", query=(CURSOR, LIMIT), answers={200: DeadPage})
async def listing(request: web.Request) -> web.Response:
    """What is in the dead-letter box: reason, attempts, history. Payloads only with the scope `inspect`."""
    who = identity(request)
    after, limit = _cursor(request), LIMIT.of(request)
    found = await request.app[HUB].store.dead_letters.page(agent_to_look_at(request, who), after, limit)
    answer: dict[str, Any] = {"messages": [_shown(one, "inspect" in who.scopes) for one in found]}
    if len(found) == limit:
        answer["cursor"] = found[-1].entry
    return json(answer)


def _cursor(request: web.Request) -> str:
    text = CURSOR.of(request) or ""
    if text and not _IN_BOX.fullmatch(text):
        raise Malformed("cursor: expected one that came with a page")
    return text


def _shown(one: DeadLetter, with_payload: bool) -> dict[str, Any]:
    tenant, to, sender, message_id, kind, thread, priority, size = one.head.split("\t")
    fields: dict[str, Any] = {
        "entry": one.entry,
        "id": message_id,
        "to": f"{tenant}/{to}",
        "from": f"{tenant}/{sender}",
        "priority": int(priority),
        "bytes": int(size),
        "reason": one.reason,
        "attempts": one.attempts,
        "at_ms": one.at_ms,
        "history": one.history,
    }
    if kind:
        fields["type"] = unescape(kind)
    if thread:
        fields["thread"] = unescape(thread)
    if with_payload:
        fields["payload"] = payload_of(one.body)
    return fields


class Revive(Struct):
    """Which dead letters to start again."""

    entries: Annotated[list[Annotated[str, Meta(max_length=64)]], Meta(max_length=MAX_ENTRIES_PER_FRAME)] = []
    all: bool = False


@routes.post("/v1/agents/{agent}/dead/revive")
@call("receive", body=Revive, answers={200: Revived})
async def revive(request: web.Request) -> web.Response:
    """Start dead letters again, with no failed attempts: some, or all."""
    agent, letters = own_agent(request, identity(request)), request.app[HUB].store.dead_letters
    sent = await body(request, Revive)
    if bool(sent.entries) == sent.all:
        raise Malformed("Expected either entries or all")
    outcomes = await _revive_all(letters, agent) if sent.all else await _revive(letters, agent, sent.entries)
    return json(
        {
            "revived": [{"entry": old, "new_entry": new} for old, (word, new) in outcomes.items() if word == "revived"],
            "refused": [{"entry": old, "code": CODES[word]} for old, (word, _) in outcomes.items() if word in CODES],
        }
    )


CODES = {"full": "queue_full", "duplicate": "duplicate", "not_found": "not_found"}
Outcomes = dict[str, tuple[str, str]]


async def _revive(letters: DeadLetters, agent: str, entries: list[str]) -> Outcomes:
    outcomes: Outcomes = dict.fromkeys(entries, ("not_found", ""))
    known = [entry for entry in outcomes if _IN_BOX.fullmatch(entry)]
    return outcomes | dict(zip(known, await letters.revive(agent, known), strict=True))


async def _revive_all(letters: DeadLetters, agent: str) -> Outcomes:
    """Page by page, until the box is through or the mailbox full."""
    outcomes: Outcomes = {}
    after = ""
    while page := await letters.page(agent, after, REVIVE_AT_ONCE):
        some = await _revive(letters, agent, [one.entry for one in page])
        outcomes |= some
        after = page[-1].entry
        if any(word == "full" for word, _ in some.values()):
            break
    return outcomes


@routes.delete("/v1/agents/{agent}/dead/{entry}")
@call("receive", answers={200: Dropped}, errors=(NotFound,))
async def drop(request: web.Request) -> web.Response:
    """Remove a dead letter for good."""
    agent, entry = own_agent(request, identity(request)), request.match_info["entry"]
    if not _IN_BOX.fullmatch(entry) or not await request.app[HUB].store.dead_letters.drop(agent, entry):
        raise NotFound("no such dead letter")
    return json({"entry": entry, "dropped": True})
