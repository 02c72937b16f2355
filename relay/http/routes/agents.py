"""Agents: registration and blocks."""

from typing import Annotated, Any

from aiohttp import web
from msgspec import UNSET, Meta, Raw, UnsetType

from relay.auth import Identity, key_bytes
from relay.errors import Busy, Forbidden, Malformed, NotFound
from relay.http.app_keys import INSTANCE
from relay.http.auth import agent_in_path, identity, own_agent
from relay.http.body import RequestBody, read_body, read_no_fields
from relay.http.operation import operation
from relay.http.query import Query, read_query
from relay.http.responses import json_response
from relay.http.schemas.agents import (
    AgentShown,
    Blocked,
    Blocks,
    PauseShown,
    PresenceShown,
    Removed,
    SessionShown,
)
from relay.http.schemas.fields import KEY_EXAMPLE, Mode, doc
from relay.protocol.address import address
from relay.protocol.frames import MAX_CARD_BYTES, TimeMs
from relay.store.agents.agents import Description
from relay.store.agents.pauses import Pause
from relay.store.agents.rates import LIST
from relay.store.store import Store

routes = web.RouteTableDef()

MOST_SESSIONS = 100  # of an agent that are shown


class RemoveQuery(Query):
    force: Annotated[bool, doc("Also a mailbox that is not empty: what is in it is cancelled.", True)] = False


class Registration(RequestBody):
    """Fields of a registration. Absent: unchanged; null: removed. Only an admin sets caps."""

    card: Annotated[Raw, doc("What the agent says of itself: a JSON object.", {"name": "Bob"})] | UnsetType = UNSET
    mode: Mode | UnsetType = UNSET
    key: Annotated[str | None, doc("Its Ed25519 public key, in base64.", KEY_EXAMPLE)] | UnsetType = UNSET
    next_active_at_ms: (
        Annotated[TimeMs | None, doc("When it will be back, in ms since 1970.", 1_800_003_600_000)] | UnsetType
    ) = UNSET
    max_messages: (
        Annotated[
            Annotated[int, Meta(ge=1, le=1_000_000)] | None, doc("How many messages its mailbox may have.", 1_000)
        ]
        | UnsetType
    ) = UNSET
    rate_per_s: (
        Annotated[Annotated[int, Meta(ge=1, le=10_000_000)] | None, doc("How many messages a second it may send.", 10)]
        | UnsetType
    ) = UNSET
    rate_burst: (
        Annotated[Annotated[int, Meta(ge=1, le=10_000_000)] | None, doc("How many at once, when it is rested.", 20)]
        | UnsetType
    ) = UNSET
    max_bytes: (
        Annotated[Annotated[int, Meta(ge=1, le=2**40)] | None, doc("How many bytes its mailbox may have.", 2**26)]
        | UnsetType
    ) = UNSET


async def names_from(store: Store, tenant: str, shard: int, after: str, limit: int) -> list[str]:
    """The next agents of a tenant, shard after shard."""
    names: list[str] = []
    while shard < store.keys.shards and len(names) < limit:
        names += await store.roster.page(shard, tenant, after, limit - len(names))
        shard, after = shard + 1, ""
    return names


def parse_agent_cursor(text: str | None, store: Store, tenant: str) -> tuple[int, str]:
    """The shard, and behind which agent of it. Raises Malformed."""
    if text is None:
        return 0, ""
    shard, _, after = text.partition(":")
    if after.startswith(f"{tenant}/") and after_agent(store, after) == text:
        return int(shard), after
    raise Malformed("cursor: expected one that came with a page")


def after_agent(store: Store, address: str) -> str:
    """The cursor of a page that ends with this agent."""
    return f"{store.keys.shard(address)}:{address}"


def shown(agent: Description, now_ms: int) -> AgentShown:
    """An agent as a caller sees it."""
    registration = agent.registration or {}
    next_active_at_ms = _or_unset(agent.next_active_at_ms)
    return AgentShown(
        agent=agent.address,
        registered=agent.registration is not None,
        presence=PresenceShown(agent.online, agent.last_seen_ms, next_active_at_ms),
        online=agent.online,
        last_seen_ms=agent.last_seen_ms,
        depth=agent.depth,
        waiting=agent.waiting,
        held=agent.held,
        delayed=agent.delayed,
        bytes=agent.bytes,
        oldest_ms=agent.oldest_ms,
        oldest_age_s=None if agent.oldest_ms is None else max(0, now_ms - agent.oldest_ms) / 1_000,
        dead=agent.dead,
        mode=registration.get("mode"),
        key=registration.get("key"),
        why=agent.why or UNSET,
        paused=UNSET if agent.pause is None else pause_shown(agent.pause),
        card=Raw(registration["card"].encode()) if "card" in registration else UNSET,
        next_active_at_ms=next_active_at_ms,
        max_messages=_or_unset(agent.max_messages),
        max_bytes=_or_unset(agent.max_bytes),
    )


def pause_shown(pause: Pause) -> PauseShown:
    return PauseShown(pause.by, pause.since_ms, pause.scope, pause.reason or UNSET)


def _or_unset(number: int | None) -> int | UnsetType:
    return UNSET if number is None else number


@routes.get("/v1/agents/{agent}")
@operation("send", "receive", "inspect", answers={200: AgentShown}, errors=(NotFound,))
async def show(request: web.Request) -> web.Response:
    """Show an agent.

    Card, mode, key, presence, and how full its mailbox is.
    """
    who = identity(request)
    return json_response(await _known(request, agent_in_path(request, who), view_of(who)))


def view_of(who: Identity) -> str:
    """The viewer of mailboxes: an admin sees everything, others see no sign of blocks against them."""
    return "" if who.is_admin else who.address


async def _known(request: web.Request, agent: str, viewer: str = "") -> AgentShown:
    store = request.app[INSTANCE].store
    (description,) = await store.agents.describe([agent], viewer, MOST_SESSIONS)
    if description.registration is None and not (description.depth or description.dead or description.online):
        raise NotFound("no such agent")
    known = shown(description, store.clock.now_ms())
    rate = await store.limits.rate_of(agent)
    if rate is not None:
        known.rate_per_s, known.rate_burst = rate
    known.sessions = [
        SessionShown(session.name, session.mode, session.window, session.holds, session.alive)
        for session in description.sessions
    ]
    return known


@routes.put("/v1/agents/{agent}")
@operation("receive", body=Registration, answers={200: AgentShown}, price=LIST)
async def register(request: web.Request) -> web.Response:
    """Register an agent.

    Makes an agent known, or changes what is known of it.
    """
    who = identity(request)
    agent = own_agent(request, who)
    sent = await read_body(request, Registration)
    _check(request, who, sent)
    store = request.app[INSTANCE].store
    store.memory.require()
    by_admin = {"by_admin": True} if who.is_admin else {}  # it stays, however long it is away
    await store.agents.register(agent, **_changes(sent), **by_admin)
    if sent.next_active_at_ms is not UNSET:
        await store.presence.expect(agent, sent.next_active_at_ms or 0)
    if sent.max_messages is not UNSET or sent.max_bytes is not UNSET:
        (before,) = await store.agents.describe([agent])
        max_messages = before.max_messages if sent.max_messages is UNSET else sent.max_messages
        max_bytes = before.max_bytes if sent.max_bytes is UNSET else sent.max_bytes
        await store.limits.set_caps(agent, max_messages, max_bytes, who.address)
    if sent.rate_per_s is not UNSET or sent.rate_burst is not UNSET:
        own_per_s, own_burst = await store.limits.rate_of(agent) or (None, None)
        per_s = own_per_s if sent.rate_per_s is UNSET else sent.rate_per_s
        burst = own_burst if sent.rate_burst is UNSET else sent.rate_burst
        await store.limits.set_rate(agent, per_s, burst, who.address)
    return json_response(await _known(request, agent))


def _check(request: web.Request, who: Identity, sent: Registration) -> None:
    """Caps are an admin's; so are keys in a closed tenant. Raises Forbidden, Malformed."""
    if not who.is_admin:
        limits = (sent.max_messages, sent.max_bytes, sent.rate_per_s, sent.rate_burst)
        if any(limit is not UNSET for limit in limits):
            raise Forbidden("caps and rates are set by an admin")
        if sent.key is not UNSET and not request.app[INSTANCE].settings.is_open(who.tenant):
            raise Forbidden("in a closed tenant an admin sets keys")
    if isinstance(sent.key, str):
        _check_key(sent.key)
    card = b"null" if sent.card is UNSET else bytes(sent.card)
    if (not card.startswith(b"{") and card != b"null") or len(card) > MAX_CARD_BYTES:
        raise Malformed(f"Expected an object of at most {MAX_CARD_BYTES} bytes - at `$.card`")


def _check_key(text: str) -> None:
    try:
        key_bytes(text)
    except ValueError:
        raise Malformed("Expected base64 of 32 bytes, an Ed25519 public key of full order - at `$.key`") from None


def _changes(sent: Registration) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if sent.card is not UNSET:
        text = bytes(sent.card).decode()
        changes["card"] = None if text == "null" else text
    for name in ("mode", "key"):
        value = getattr(sent, name)
        if value is not UNSET:
            changes[name] = value
    return changes


@routes.delete("/v1/agents/{agent}")
@operation("receive", query=RemoveQuery, answers={200: Removed}, errors=(NotFound, Busy), price=LIST)
async def remove(request: web.Request) -> web.Response:
    """Remove an agent.

    A mailbox or dead-letter box that is not empty needs `force`.
    """
    who = identity(request)
    agent = own_agent(request, who)
    word = await request.app[INSTANCE].store.agents.remove(agent, read_query(request, RemoveQuery).force, who.address)
    if word == "unknown":
        raise NotFound("no such agent")
    if word == "not_empty":
        raise Busy("the mailbox is not empty; ?force=true cancels what is in it")
    return json_response(Removed(agent))


# -- blocks


@routes.get("/v1/agents/{agent}/blocks")
@operation("receive", answers={200: Blocks})
async def blocks(request: web.Request) -> web.Response:
    """List blocked senders."""
    who = identity(request)
    return json_response(Blocks(await request.app[INSTANCE].store.agents.blocked(own_agent(request, who))))


def _two(request: web.Request, who: Identity) -> tuple[str, str]:
    """The blocking and the blocked agent, in one tenant. Raises Forbidden."""
    agent = own_agent(request, who)
    tenant = agent.partition("/")[0]
    other = address(request.match_info["address"].replace("~", "/", 1), tenant)
    if other.partition("/")[0] != tenant:
        raise Forbidden("agents of another tenant")
    return agent, other


@routes.get("/v1/agents/{agent}/blocks/{address:.+}")
@operation("receive", answers={200: Blocked}, errors=(NotFound,))
async def is_blocked(request: web.Request) -> web.Response:
    """Tell whether a sender is blocked.

    404 if it is not.
    """
    agent, other = _two(request, identity(request))
    if other not in await request.app[INSTANCE].store.agents.blocked(agent):
        raise NotFound("not blocked")
    return json_response(Blocked(other))


@routes.put("/v1/agents/{agent}/blocks/{address:.+}")
@operation("receive", answers={200: Blocks}, price=LIST)
async def block(request: web.Request) -> web.Response:
    """Block a sender.

    Its messages do not arrive any more; it is not told.
    """
    agent, other = _two(request, identity(request))
    await read_no_fields(request)
    return json_response(Blocks(await request.app[INSTANCE].store.agents.change_blocks(agent, [other], [])))


@routes.delete("/v1/agents/{agent}/blocks/{address:.+}")
@operation("receive", answers={200: Blocks}, price=LIST)
async def unblock(request: web.Request) -> web.Response:
    """Unblock a sender."""
    agent, other = _two(request, identity(request))
    return json_response(Blocks(await request.app[INSTANCE].store.agents.change_blocks(agent, [], [other])))
