"""Health, readiness and metrics."""

import hmac
import ipaddress

from aiohttp import web

from relay.errors import Forbidden, RelayError, Unauthorized
from relay.http.answers import Alive, Readiness
from relay.http.calls import call
from relay.http.door import HUB, TOKENS, json
from relay.hub import Hub

routes = web.RouteTableDef()


@routes.get("/healthz")
@call(anybody=True, answers={200: Alive}, uses_store=False)
async def healthz(_: web.Request) -> web.Response:
    """The process is alive."""
    return json({"status": "alive"})


@routes.get("/readyz")
@call(anybody=True, answers={200: Readiness, 503: Readiness}, uses_store=False)
async def readyz(request: web.Request) -> web.Response:
    """200 if this instance should get traffic; else 503 and why."""
    hub = request.app[HUB]
    reason = hub.not_ready() or await _ask_store(hub)
    depth = {str(shard): messages for shard, (messages, _) in hub.metrics.depth.items() if messages}
    answer: dict[str, object] = {
        "status": "not_ready" if reason else "ready",
        "instance": hub.store.instance,
        "sessions": hub.metrics.sessions,
        "messages": sum(depth.values()),
        "depth_by_shard": depth,
        "durability": hub.store.level(),
    }
    if reason:
        answer["reason"] = reason
    failing = await hub.store.duties.failing_workers() if not reason else {}
    if failing:
        answer |= {"status": "not_ready", "reason": "workers cannot do their duty", "workers": failing}
    return json(answer, status=200 if answer["status"] == "ready" else 503)


async def _ask_store(hub: Hub) -> str | None:
    try:
        await hub.store.line.command("PING")
    except RelayError as error:
        return error.message
    return None


@routes.get("/metrics")
@call(anybody=True, answers={200: "text/plain"}, errors=(Unauthorized, Forbidden), uses_store=False)
async def metrics(request: web.Request) -> web.Response:
    """Prometheus. From this machine without a token, from elsewhere with the scope metrics or RELAY_METRICS_TOKEN."""
    _may_see_metrics(request)
    return web.Response(body=request.app[HUB].metrics.text(), content_type="text/plain", charset="utf-8")


def _may_see_metrics(request: web.Request) -> None:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        _check_metrics_token(request, token.strip())
    elif not _is_loopback(request.remote):
        raise Unauthorized("a token with the scope metrics is needed")


def _check_metrics_token(request: web.Request, token: str) -> None:
    fixed = request.app[HUB].settings.metrics_token
    if fixed is not None and hmac.compare_digest(token.encode(), fixed.encode()):
        return
    if not request.app[TOKENS].verify(token).scopes & {"metrics", "admin"}:
        raise Forbidden("the token lacks the scope metrics")


def _is_loopback(remote: str | None) -> bool:
    try:
        return remote is None or ipaddress.ip_address(remote).is_loopback
    except ValueError:
        return False
