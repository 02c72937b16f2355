"""Health, readiness and metrics."""

from aiohttp import web
from msgspec import UNSET

from relay.core.instance.instance import Instance
from relay.errors import Forbidden, RelayError, StoreUnavailable, Unauthorized
from relay.http.app_keys import INSTANCE, TOKENS
from relay.http.operation import operation
from relay.http.responses import json_response
from relay.http.schemas.health import Alive, Readiness, StoreMemory, WentBack
from relay.store.memory import Memory
from relay.store.store import Store
from relay.telemetry.scraping import check_scraper

routes = web.RouteTableDef()

TOLD_MS = 3_600_000  # how long it is told that the store went back in time


@routes.get("/healthz")
@operation(anybody=True, answers={200: Alive}, uses_store=False)
async def healthz(_: web.Request) -> web.Response:
    """Tell whether the process is alive."""
    return json_response(Alive())


@routes.get("/readyz")
@operation(anybody=True, answers={200: Readiness, 503: Readiness}, uses_store=False)
async def readyz(request: web.Request) -> web.Response:
    """Tell whether this instance is ready.

    200 if it should get traffic; else 503 and why.
    """
    instance = request.app[INSTANCE]
    reason = instance.not_ready() or await _ask_store(instance)
    depth = {str(shard): messages for shard, (messages, _) in instance.metrics.depth.items() if messages}
    failing = await _failing(instance.store) if not reason else {}
    if failing:
        reason = "workers cannot do their duty"
    answer = Readiness(
        status="not_ready" if reason else "ready",
        instance=instance.store.instance,
        sessions=instance.metrics.sessions,
        messages=sum(depth.values()),
        depth_by_shard=depth,
        durability=instance.store.level(),
        memory=_memory(instance.store.memory),
        warnings=_warnings(instance.store) or UNSET,
        masters_away=instance.store.masters_away() or UNSET,
        regressed=_regressed(instance.store) or UNSET,
        workers_absent_s=round(instance.duties.absent_s) or UNSET,
        reason=reason or UNSET,
        workers=failing or UNSET,
    )
    return json_response(answer, status=503 if reason else 200)


async def _failing(store: Store) -> dict[str, str]:
    """The workers that fail. On a Cluster the master that knows may be away, which keeps nobody from the others."""
    try:
        return await store.workers.failing()
    except StoreUnavailable:
        return {}


def _warnings(store: Store) -> list[str]:
    """Problems that an operator should know, but that do not make the instance unready."""
    warnings = list(store.safety.warnings) if store.safety else []
    if store.memory.is_short:
        warnings.append("the store is nearly full: sends are refused until some of it is acked, expired or trimmed")
    return warnings


def _regressed(store: Store) -> list[WentBack]:
    since_ms = store.clock.now_ms() - TOLD_MS
    lately = {shard: regress for shard, regress in store.meta.regresses.items() if regress.at_ms > since_ms}
    return [WentBack(shard, **regress.as_fields()) for shard, regress in sorted(lately.items())]


def _memory(memory: Memory) -> StoreMemory:
    return StoreMemory(memory.used_bytes, memory.max_bytes, round(memory.share, 3), memory.is_short)


async def _ask_store(instance: Instance) -> str | None:
    try:
        await instance.store.ping()
    except RelayError as error:
        return error.message
    return None


@routes.get("/metrics")
@operation(anybody=True, answers={200: "text/plain"}, errors=(Unauthorized, Forbidden), uses_store=False)
async def metrics(request: web.Request) -> web.Response:
    """Show metrics for Prometheus.

    With the scope metrics or RELAY_METRICS_TOKEN. From this machine, and not through a proxy, it needs no token unless
    RELAY_METRICS_TOKEN is set.
    """
    instance = request.app[INSTANCE]
    check_scraper(request, instance.settings.metrics_token, request.app[TOKENS])
    return web.Response(body=instance.metrics.text(), content_type="text/plain", charset="utf-8")
