"""A2A's JSON-RPC: one route for each agent."""

import math

import orjson
from aiohttp import web

from relay.a2a.call import Generation, Rpc
from relay.a2a.errors import (
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    ParseError,
    RpcError,
    VersionNotSupported,
    to_rpc_error,
)
from relay.a2a.forms import Json, is_shallow
from relay.a2a.methods import METHODS, Method
from relay.auth import Identity
from relay.core.intake import pay
from relay.errors import Forbidden, Malformed, NotFound, RelayError
from relay.http.app_keys import INSTANCE
from relay.http.auth import identity
from relay.http.body import read_text
from relay.http.errors import SlowBody
from relay.http.responses import json_response
from relay.protocol.address import is_agent
from relay.store.agents.rates import LOOK

routes = web.RouteTableDef()


@routes.post("/a2a/{tenant}/{agent}")
async def call(request: web.Request) -> web.StreamResponse:
    """A2A's JSON-RPC 2.0, one request for each call; streams are Server-Sent Events.

    Needs the scope send. What JSON-RPC or A2A itself refuses is answered 200 with an `error`; what the relay refuses
    (401 403 404 413 429 503) has its usual status, and from 404 on an `error` of JSON-RPC too.
    """
    who = identity(request, "send")
    agent = _agent(request, who)
    call_id: str | int | float | None = None
    try:
        envelope = _parse(await _text(request))
        call_id = envelope.get("id")
        await pay(request.app[INSTANCE].store, who.address, LOOK)
        generation, method = _method(request, envelope)
        return await method(Rpc(request, who, agent, generation, call_id, _params(envelope)))
    except RpcError as error:
        return _refuse(call_id, error)
    except Forbidden:
        raise
    except RelayError as error:
        return _refuse(call_id, to_rpc_error(error))


def _agent(request: web.Request, who: Identity) -> str:
    tenant, agent = request.match_info["tenant"], request.match_info["agent"]
    if not is_agent(tenant) or not is_agent(agent):
        raise NotFound("no such agent")
    if tenant != who.tenant:
        raise Forbidden("agents of another tenant")
    return f"{tenant}/{agent}"


def _refuse(call_id: str | int | float | None, error: RpcError) -> web.Response:
    body = {"jsonrpc": "2.0", "id": call_id, "error": error.as_fields()}
    headers = {}
    if "retry_after_ms" in error.details:
        headers["Retry-After"] = str(max(1, math.ceil(error.details["retry_after_ms"] / 1_000)))
    return json_response(body, status=error.status, **headers)


async def _text(request: web.Request) -> str:
    try:
        return await read_text(request)
    except Malformed as error:
        raise ParseError(error.message, error.status if isinstance(error, SlowBody) else 200) from None


def _parse(text: str) -> Json:
    try:
        envelope = orjson.loads(text)
    except (orjson.JSONDecodeError, RecursionError):
        raise ParseError("Invalid JSON payload") from None
    if not is_shallow(envelope):
        raise InvalidRequest("The request is nested too deeply")
    if not isinstance(envelope, dict):
        raise InvalidRequest("A request is one JSON object; batches are not supported")
    call_id = envelope.get("id")
    if isinstance(call_id, bool) or not isinstance(call_id, str | int | float | None):
        envelope["id"] = None
        raise InvalidRequest("id: expected a string, a number or null")
    return envelope


def _method(request: web.Request, envelope: Json) -> tuple[Generation, Method]:
    if envelope.get("jsonrpc") != "2.0":
        raise InvalidRequest("jsonrpc: expected 2.0")
    name = envelope.get("method")
    if not isinstance(name, str) or not name:
        raise InvalidRequest("method: expected a string")
    version = request.headers.get("A2A-Version", "")
    if version and version.split(".")[0] != "1" and version.split(".")[:2] != ["0", "3"]:
        raise VersionNotSupported("The relay speaks A2A 1.0 and 0.3")
    if name not in METHODS:
        raise MethodNotFound("Method not found")
    return METHODS[name]


def _params(envelope: Json) -> Json:
    params = envelope.get("params", {})
    if not isinstance(params, dict):
        raise InvalidParams("params: expected an object")
    return params
