"""Agent cards: the card that an agent registered, with the relay's URL and capabilities."""

from typing import Any

from aiohttp import web

from relay.a2a.forms import Json, readable
from relay.errors import Forbidden, NotFound
from relay.http.app_keys import INSTANCE
from relay.http.auth import identity
from relay.http.responses import json_response
from relay.protocol.address import is_agent

routes = web.RouteTableDef()

NEW, OLD = "1.0", "0.3.0"
SCHEME = "bearer"
MODES = ["text/plain", "application/json"]

# What only an agent with an address of its own could say; a signature would not fit the card any more.
_LEFT_OUT = frozenset(("additionalInterfaces", "supportsAuthenticatedExtendedCard", "signatures"))
_SKILL_TEXTS, _SKILL_LISTS = ("id", "name", "description"), ("tags", "examples", "inputModes", "outputModes")


@routes.get("/a2a/{tenant}/{agent}/.well-known/agent-card.json")
@routes.get("/a2a/{tenant}/{agent}/.well-known/agent.json")
async def card(request: web.Request) -> web.Response:
    """An agent's card, for clients of A2A 1.0 and 0.3. Without a token in an open tenant; else 401, 403, 404."""
    tenant, agent = request.match_info["tenant"], request.match_info["agent"]
    if not is_agent(tenant) or not is_agent(agent):
        raise NotFound("no such agent")
    instance = request.app[INSTANCE]
    is_open = instance.settings.is_open(tenant)
    if not is_open:
        who = identity(request)
        if who.tenant != tenant and not who.is_operator:
            raise Forbidden("agents of another tenant")
    registration = await instance.store.agents.registration(f"{tenant}/{agent}")
    if registration is None and not is_open:
        raise NotFound("no such agent")
    own = readable((registration or {}).get("card", "null").encode())
    return json_response(merged(own, agent, f"{_origin(request)}/a2a/{tenant}/{agent}"))


def _origin(request: web.Request) -> str:
    """Where the client reached the relay; a proxy in front that ends TLS says so."""
    scheme = "https" if request.headers.get("X-Forwarded-Proto") == "https" else request.scheme
    return f"{scheme}://{request.host}"


def merged(own: object, agent: str, url: str) -> Json:
    """The agent's own card, made whole, with everything that is the relay's to say."""
    said: Json = own if isinstance(own, dict) else {}
    return {
        **{name: value for name, value in said.items() if name not in _LEFT_OUT and _is_well(name, value)},
        "name": _text(said, "name", agent),
        "description": _text(said, "description", f"{agent}, reached through a relay"),
        "version": _text(said, "version", "1"),
        "skills": [_skill(skill) for skill in _list(said.get("skills")) if _is_skill(skill)],
        "defaultInputModes": _texts(said.get("defaultInputModes")) or MODES,
        "defaultOutputModes": _texts(said.get("defaultOutputModes")) or MODES,
        "capabilities": _capabilities(said.get("capabilities")),
        "supportedInterfaces": [
            {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": version} for version in (NEW, OLD[:3])
        ],
        "securityRequirements": [{"schemes": {SCHEME: {"list": []}}}],
        "securitySchemes": {SCHEME: _scheme()},
        # what 0.3 reads instead
        "protocolVersion": OLD,
        "url": url,
        "preferredTransport": "JSONRPC",
        "security": [{SCHEME: []}],
    }


def _scheme() -> Json:
    """A token of the relay, in the words of 1.0 and beside them of 0.3."""
    bearer = {"scheme": "bearer", "bearerFormat": "JWT"}
    return {"httpAuthSecurityScheme": bearer, "type": "http", **bearer}


def _capabilities(own: object) -> Json:
    said = own if isinstance(own, dict) else {}
    extensions = [
        {name: extension[name] for name in ("uri", "description") if isinstance(extension.get(name), str)}
        | {name: extension[name] for name in ("params",) if isinstance(extension.get(name), dict)}
        for extension in _list(said.get("extensions"))
        if isinstance(extension, dict) and isinstance(extension.get("uri"), str)
    ]
    ours: Json = {"streaming": True, "pushNotifications": False}
    return {**ours, "extensions": extensions} if extensions else ours


def _is_well(name: str, value: object) -> bool:
    """A client would give up on a whole card for one field of another type."""
    match name:
        case "documentationUrl" | "iconUrl":
            return isinstance(value, str)
        case "provider":
            return isinstance(value, dict) and all(isinstance(value.get(text), str) for text in ("organization", "url"))
    return value is not None


def _is_skill(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(name), str) for name in _SKILL_TEXTS)


def _skill(own: Json) -> Json:
    lists = {name: _texts(own.get(name)) for name in _SKILL_LISTS}
    given = {name: texts for name, texts in lists.items() if texts or name == "tags"}
    return {name: own[name] for name in _SKILL_TEXTS} | given


def _text(said: Json, name: str, default: str) -> str:
    value = said.get(name)
    return value if isinstance(value, str) and value else default


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _texts(value: object) -> list[str]:
    return [text for text in _list(value) if isinstance(text, str)]
