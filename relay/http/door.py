"""What every HTTP call shares: who is asking, what they sent, and how an error looks."""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import msgspec
import orjson
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from relay.auth import Identity, Tokens
from relay.errors import (
    Forbidden,
    Malformed,
    NotFound,
    RateLimited,
    RelayError,
    StoreUnavailable,
    TooLarge,
    Unauthorized,
)
from relay.http.calls import Handler, call_of
from relay.http.parameters import FROM, TENANT
from relay.hub import Hub
from relay.protocol import address, is_agent

log = logging.getLogger(__name__)

BODY_WITHIN_S = 15.0  # a body that trickles in more slowly is not waited for
MAX_WAITS = 100  # long polls and streams that one identity may have open on one instance
WAIT_AGAIN_MS = 1_000

Body = TypeVar("Body")


class SlowBody(Malformed):
    status = 408


class MethodNotAllowed(Malformed):
    code = "method_not_allowed"
    status = 405


class InternalError(StoreUnavailable):
    code = "internal"
    status = 500


class Waits:
    """How many long waits each identity has open here."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    @contextmanager
    def one_more(self, who: Identity) -> Iterator[None]:
        """Raises RateLimited for one too many."""
        if self._open[who.address] >= MAX_WAITS:
            raise RateLimited(f"at most {MAX_WAITS} calls may wait at once", retry_after_ms=WAIT_AGAIN_MS)
        self._open[who.address] += 1
        try:
            yield
        finally:
            self._open[who.address] -= 1
            if not self._open[who.address]:
                del self._open[who.address]


HUB = web.AppKey("hub", Hub)
TOKENS = web.AppKey("tokens", Tokens)
WAITS = web.AppKey("waits", Waits)


def json(body: object, status: int = 200, **headers: str) -> web.Response:
    return web.Response(
        body=orjson.dumps(body, default=_plain), status=status, content_type="application/json", headers=headers
    )


def _plain(value: object) -> object:
    if isinstance(value, msgspec.Raw):
        return orjson.Fragment(bytes(value))
    raise TypeError(type(value).__name__)


# -- errors


def error_response(error: RelayError) -> web.Response:
    headers = {}
    if "retry_after_ms" in error.details:
        headers["Retry-After"] = str(max(1, math.ceil(error.details["retry_after_ms"] / 1_000)))
    if isinstance(error, Unauthorized):
        headers["WWW-Authenticate"] = "Bearer"
    return json({"error": error.as_fields()}, status=error.status, **headers)


@web.middleware
async def errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every error becomes a response here, and none says more than its class does."""
    try:
        return await handler(request)
    except RelayError as error:
        return error_response(error)
    except web.HTTPRequestEntityTooLarge:
        return error_response(TooLarge("the body is too large", max=request.app[HUB].settings.max_frame_bytes))
    except web.HTTPNotFound:
        return error_response(NotFound("no such resource"))
    except web.HTTPMethodNotAllowed as error:
        return _other_method(request, error)
    except web.HTTPClientError as error:
        found = error_response(Malformed(error.reason))
        found.set_status(error.status)
        return found
    except (web.HTTPException, asyncio.CancelledError):
        raise
    except ConnectionError:
        return error_response(Malformed("the caller has gone"))  # which nobody will read
    except Exception:
        log.exception("request_failed", extra={"method": request.method, "route": _route(request)})
        return error_response(InternalError("something went wrong here"))


def _other_method(request: web.Request, error: web.HTTPMethodNotAllowed) -> web.Response:
    """OPTIONS is answered for every resource; whatever else it does not have is refused."""
    allowed = ", ".join(sorted({*error.allowed_methods, "OPTIONS"}))
    if request.method == "OPTIONS":
        return web.Response(status=204, headers={"Allow": allowed})
    found = error_response(MethodNotAllowed(f"{request.method[:20]} is not possible here"))
    found.headers["Allow"] = allowed
    return found


def is_worth_logging(record: logging.LogRecord) -> bool:
    """What is not even HTTP is answered 400 before it gets here; whoever sends it does not fill the log."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


def _route(request: web.Request) -> str:
    resource = request.match_info.route.resource
    return resource.canonical if resource else ""


# -- who


def identity(request: web.Request, *scopes: str) -> Identity:
    """Who is asking, with one of these scopes, else of those that the call names. Raises Unauthorized, Forbidden."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise Unauthorized("a token is needed: Authorization: Bearer …")
    found = request.app[TOKENS].verify(token.strip())
    described = call_of(request.match_info.handler)
    needed = scopes or (described.scopes if described else None) or ()
    if needed and not found.scopes & {*needed, "admin"}:
        raise Forbidden(f"the token lacks the scope {' or '.join(needed)}")
    return found


def agent_in_path(request: web.Request, who: Identity) -> str:
    """The agent that the path names: bare in the token's tenant, or tenant~agent for an admin. Raises Forbidden."""
    name = request.match_info["agent"]
    tenant, tilde, agent = name.partition("~")
    if not tilde:
        tenant, agent = who.tenant, name
    if not is_agent(agent) or not is_agent(tenant):
        raise Malformed("agent: expected 1–64 of a-z A-Z 0-9 . _ - in the path")
    if tenant != who.tenant and "admin" not in who.scopes:
        raise Forbidden("agents of another tenant")
    return f"{tenant}/{agent}"


def own_agent(request: web.Request, who: Identity) -> str:
    """The agent in the path, which must be the token's own unless it is an admin's. Raises Forbidden."""
    agent = agent_in_path(request, who)
    if agent != who.address and "admin" not in who.scopes:
        raise Forbidden("the token is another agent's")
    return agent


def agent_to_look_at(request: web.Request, who: Identity) -> str:
    """The agent in the path: any of the tenant with the scope inspect, else the token's own. Raises Forbidden."""
    return agent_in_path(request, who) if "inspect" in who.scopes else own_agent(request, who)


def sender_asked_for(request: web.Request, who: Identity, tenant: str | None = None) -> str:
    """On whose behalf a sender's question is asked: its own, or ?from= by an admin. Raises Forbidden."""
    named = FROM.of(request)
    if named is None:
        return who.address
    found = address(named.replace("~", "/", 1), tenant or who.tenant)
    if found != who.address and "admin" not in who.scopes:
        raise Forbidden("only an admin may ask for another sender")
    return found


def tenant_asked_for(request: web.Request, who: Identity) -> str:
    """The token's tenant, or ?tenant= by an admin. Raises Forbidden."""
    tenant = TENANT.of(request)
    if tenant is None or tenant == who.tenant:
        return who.tenant
    if "admin" not in who.scopes:
        raise Forbidden("another tenant's")
    if not is_agent(tenant):
        raise Malformed("tenant: expected 1–64 of a-z A-Z 0-9 . _ -")
    return tenant


def has_gone(request: web.Request) -> bool:
    """Whether nobody reads the answer any more."""
    return request.transport is None or request.transport.is_closing()


# -- what


async def body(request: web.Request, kind: type[Body]) -> Body:
    """The body, decoded and checked; an empty one is an empty object. Raises Malformed, TooLarge or SlowBody."""
    text = await read(request)
    try:
        return msgspec.json.decode(text or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise Malformed(str(error)[:300]) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise Malformed(f"the body is not JSON: {error}"[:300]) from None


async def read(request: web.Request) -> str:
    """The body as text. Raises Malformed, TooLarge or SlowBody."""
    try:
        async with asyncio.timeout(BODY_WITHIN_S):
            data = await request.read()
    except TimeoutError:
        raise SlowBody(f"the body did not come within {BODY_WITHIN_S:.0f} s") from None
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Malformed("the body is not UTF-8") from None
