"""Agents: registration, listing, and whom they do not want to hear."""

import base64
import binascii
from typing import Annotated, Any, Literal

from aiohttp import web
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from relay.auth import Identity
from relay.errors import Busy, Forbidden, Malformed, NotFound
from relay.http.answers import AgentPage, AgentShown, Blocked, Blocks, Removed
from relay.http.calls import call
from relay.http.door import HUB, agent_in_path, body, identity, json, own_agent, tenant_asked_for
from relay.http.parameters import CURSOR, LIMIT, TENANT, Flag
from relay.protocol import MAX_CARD_BYTES, TimeMs, address
from relay.store.agents import Description

routes = web.RouteTableDef()

FORCE = Flag("force", "Also a mailbox that is not empty: what is in it is cancelled.")


class Registration(Struct):
    """What may be said of an agent. Left out: stays as it is; null: taken away. Caps are an admin's."""

    card: Raw | UnsetType = UNSET
    mode: Literal["exclusive", "shared"] | UnsetType | None = UNSET
    key: str | UnsetType | None = UNSET
    next_active_at_ms: TimeMs | UnsetType | None = UNSET
    max_messages: Annotated[int, Meta(ge=1, le=1000000)] | UnsetType | None = UNSET
    max_bytes: Annotated[int, Meta(ge=1, le=2**40)] | UnsetType | None = UNSET


@routes.get("/v1/agents")
@call("send", "receive", "inspect", query=(TENANT, CURSOR, LIMIT), answers={200: AgentPage})
async def listing(request: web.Request) -> web.Response:
    """The agents of the token's tenant, or of another for an admin, a page at a time."""
    hub = request.app[HUB]
    tenant = tenant_asked_for(request, identity(request))
    limit = LIMIT.of(request)
    shard, after = _cursor(request, hub.store.keys.shards)
    found: list[str] = []
    while shard < hub.store.keys.shards and len(found) <= limit:
        found += [name for name in await hub.store.agents.names(shard, tenant) if name > after]
        shard, after = shard + 1, ""
    page = found[:limit]
    described = await hub.store.agents.describe(page) if page else []
    now_ms = hub.store.clock.now_ms()
    answer: dict[str, Any] = {"agents": [shown(one, now_ms) for one in described]}
    if len(found) > limit:
        answer["cursor"] = f"{hub.store.keys.shard(page[-1])}:{page[-1]}"
    return json(answer)


def _cursor(request: web.Request, shards: int) -> tuple[int, str]:
    text = CURSOR.of(request) or "0:"
    shard, colon, after = text.partition(":")
    if not (colon and shard.isascii() and shard.isdigit() and len(shard) < 6 and int(shard) < shards):
        raise Malformed("cursor: expected one that came with a page")
    return int(shard), after


def shown(one: Description, now_ms: int) -> dict[str, Any]:
    """An agent as a caller sees it."""
    registration = one.registration or {}
    fields: dict[str, Any] = {
        "agent": one.address,
        "registered": one.registration is not None,
        "online": one.online,
        "last_seen_ms": one.last_seen_ms,
        "depth": one.depth,
        "bytes": one.bytes,
        "oldest_ms": one.oldest_ms,
        "oldest_age_s": None if one.oldest_ms is None else max(0, now_ms - one.oldest_ms) / 1_000,
        "dead": one.dead,
        "mode": registration.get("mode"),
        "key": registration.get("key"),
    }
    if "card" in registration:
        fields["card"] = Raw(registration["card"].encode())
    for name in ("next_active_at_ms", "max_messages", "max_bytes"):
        value = getattr(one, name)
        if value is not None:
            fields[name] = value
    presence = ("online", "last_seen_ms", "next_active_at_ms")
    fields["presence"] = {name: fields[name] for name in presence if name in fields}
    return fields


@routes.get("/v1/agents/{agent}")
@call("send", "receive", "inspect", answers={200: AgentShown}, errors=(NotFound,))
async def show(request: web.Request) -> web.Response:
    """One agent: card, mode, key, presence, depth, bytes, oldest age."""
    return json(await _known(request, agent_in_path(request, identity(request))))


async def _known(request: web.Request, agent: str) -> dict[str, Any]:
    store = request.app[HUB].store
    (found,) = await store.agents.describe([agent])
    if found.registration is None and not (found.depth or found.dead or found.online):
        raise NotFound("no such agent")
    return shown(found, store.clock.now_ms())


@routes.put("/v1/agents/{agent}")
@call("receive", body=Registration, answers={200: AgentShown})
async def register(request: web.Request) -> web.Response:
    """Make an agent known, or change what is known of it."""
    who = identity(request)
    agent = own_agent(request, who)
    sent = await body(request, Registration)
    await _check(request, who, agent, sent)
    store = request.app[HUB].store
    await store.agents.register(agent, **_changes(sent))
    if sent.next_active_at_ms is not UNSET:
        await store.presence.expect(agent, sent.next_active_at_ms or 0)
    if sent.max_messages is not UNSET or sent.max_bytes is not UNSET:
        (before,) = await store.agents.describe([agent])
        max_messages = before.max_messages if sent.max_messages is UNSET else sent.max_messages
        max_bytes = before.max_bytes if sent.max_bytes is UNSET else sent.max_bytes
        await store.agents.set_caps(agent, max_messages, max_bytes)
    return json(await _known(request, agent))


async def _check(request: web.Request, who: Identity, agent: str, sent: Registration) -> None:
    """Caps are an admin's; so are keys and first registrations in a closed tenant. Raises Forbidden, Malformed."""
    is_admin = "admin" in who.scopes
    if not is_admin:
        if sent.max_messages is not UNSET or sent.max_bytes is not UNSET:
            raise Forbidden("caps are set by an admin")
        if not request.app[HUB].settings.is_open(who.tenant):  # only an admin names agents of another tenant
            if await request.app[HUB].store.agents.registration(agent) is None:
                raise Forbidden("in a closed tenant an admin registers agents")
            if sent.key is not UNSET:
                raise Forbidden("in a closed tenant an admin sets keys")
    if isinstance(sent.key, str):
        _check_key(sent.key)
    card = b"null" if sent.card is UNSET else bytes(sent.card)
    if (not card.startswith(b"{") and card != b"null") or len(card) > MAX_CARD_BYTES:
        raise Malformed(f"Expected an object of at most {MAX_CARD_BYTES} bytes - at `$.card`")


def _check_key(text: str) -> None:
    try:
        size = len(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        size = 0
    if size != 32:
        raise Malformed("Expected base64 of 32 bytes - at `$.key`")


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
@call("receive", query=(FORCE,), answers={200: Removed}, errors=(NotFound, Busy))
async def remove(request: web.Request) -> web.Response:
    """Forget an agent. A mailbox or dead-letter box that is not empty needs `force`."""
    agent = own_agent(request, identity(request))
    word = await request.app[HUB].store.agents.remove(agent, FORCE.of(request))
    if word == "unknown":
        raise NotFound("no such agent")
    if word == "not_empty":
        raise Busy("the mailbox is not empty; ?force=true cancels what is in it")
    return json({"agent": agent, "removed": True})


# -- blocks


@routes.get("/v1/agents/{agent}/blocks")
@call("receive", answers={200: Blocks})
async def blocks(request: web.Request) -> web.Response:
    """The senders that an agent has blocked."""
    who = identity(request)
    return json({"agents": await request.app[HUB].store.agents.blocked(own_agent(request, who))})


def _two(request: web.Request, who: Identity) -> tuple[str, str]:
    """Who blocks whom; both are of one tenant. Raises Forbidden."""
    agent = own_agent(request, who)
    tenant = agent.partition("/")[0]
    other = address(request.match_info["address"].replace("~", "/", 1), tenant)
    if other.partition("/")[0] != tenant:
        raise Forbidden("agents of another tenant")
    return agent, other


@routes.get("/v1/agents/{agent}/blocks/{address:.+}")
@call("receive", answers={200: Blocked}, errors=(NotFound,))
async def is_blocked(request: web.Request) -> web.Response:
    """Whether a sender is blocked: 404 if it is not."""
    agent, other = _two(request, identity(request))
    if other not in await request.app[HUB].store.agents.blocked(agent):
        raise NotFound("not blocked")
    return json({"agent": other, "blocked": True})


@routes.put("/v1/agents/{agent}/blocks/{address:.+}")
@call("receive", answers={200: Blocks})
async def block(request: web.Request) -> web.Response:
    """Do not hear a sender any more; it is not told."""
    agent, other = _two(request, identity(request))
    return json({"agents": await request.app[HUB].store.agents.change_blocks(agent, [other], [])})


@routes.delete("/v1/agents/{agent}/blocks/{address:.+}")
@call("receive", answers={200: Blocks})
async def unblock(request: web.Request) -> web.Response:
    """Hear a sender again."""
    agent, other = _two(request, identity(request))
    return json({"agents": await request.app[HUB].store.agents.change_blocks(agent, [], [other])})
