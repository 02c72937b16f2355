"""One instance: the application, from start to drain."""

import asyncio
import gc
import logging
import signal
from collections.abc import AsyncIterator
from contextlib import suppress

from aiohttp import web

from relay.a2a import card, rpc
from relay.a2a.following import TASK_READING, TaskReading
from relay.auth import Tokens
from relay.core.instance.instance import Instance
from relay.errors import Forbidden, Malformed, StoreUnavailable, cannot_listen
from relay.http import answer_budget, auth, cors, errors, measuring, openapi
from relay.http.app_keys import INSTANCE, LONG_POLLS, TOKENS
from relay.http.long_poll import LongPollLimit
from relay.http.operation import operation
from relay.http.routes import (
    activity,
    acts,
    agents,
    anomalies,
    dashboard,
    dead,
    events,
    health,
    instances,
    leases,
    messages,
    pauses,
    roster,
    settling,
    stats,
    tasks,
)
from relay.server.connections import Runner
from relay.server.open_files import ConnectionLimits, connection_limits, raise_limit
from relay.settings import Settings
from relay.store.store import Store, open_store
from relay.telemetry.metrics import Metrics
from relay.telemetry.tracing import traced_to
from relay.ws.connection import Connection

log = logging.getLogger(__name__)

COLLECT_AFTER = 50_000  # new objects
FAMILIES = (
    *(messages, leases, settling, tasks, roster, agents, dead, acts, pauses),
    *(activity, events, anomalies, stats, instances, health),
    *(openapi, dashboard, card, rpc),
)


@operation(anybody=True, answers={101: None}, errors=(Malformed, Forbidden, StoreUnavailable))
async def websocket(request: web.Request) -> web.StreamResponse:
    """Open a session over WebSocket.

    It authenticates in its first frame, or by the token that came with it.
    """
    instance = request.app[INSTANCE]
    if instance.draining:
        raise StoreUnavailable("this instance is stopping; come back", retry_after_ms=1_000)
    cors.check(request)
    return await Connection(request, instance, request.app[TOKENS]).serve()


def make_app(store: Store) -> web.Application:
    """The application on an open store."""
    middlewares = [measuring.requests, cors.preflights, errors.errors_to_responses, auth.charge, answer_budget.pages]
    app = web.Application(middlewares=middlewares, client_max_size=store.settings.max_frame_bytes)
    app[INSTANCE] = Instance(store, Metrics(store.instance))
    app[TOKENS] = Tokens(store.settings)
    app[LONG_POLLS] = LongPollLimit()
    app[TASK_READING] = TaskReading()
    app.on_response_prepare.append(cors.add_headers)
    add_routes(app)
    app.cleanup_ctx.append(_clockwork)
    return app


def add_routes(app: web.Application) -> None:
    """Every path that the relay answers."""
    app.router.add_get("/v1/ws", websocket, allow_head=False)
    for family in FAMILIES:
        app.add_routes(family.routes)


async def _clockwork(app: web.Application) -> AsyncIterator[None]:
    """Runs the instance while the application lives; if a part of it fails, the process stops rather than limp."""
    running = asyncio.create_task(app[INSTANCE].run(), name="instance")
    running.add_done_callback(_stop_if_failed)
    yield
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    with suppress(Exception):
        await app[INSTANCE].store.presence.resign()


def _stop_if_failed(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and task.exception() is not None:
        log.critical("instance_failed", exc_info=task.exception())
        signal.raise_signal(signal.SIGTERM)


async def serve(settings: Settings, url: str) -> None:
    """Serves until SIGTERM or SIGINT, then drains."""
    raise_limit(settings)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    async with open_store(settings, url) as store:
        await store.check()
        with traced_to(settings.otlp_endpoint, store.instance):
            await _serve_on(store, stopping)


async def _serve_on(store: Store, stopping: asyncio.Event) -> None:
    settings, limits = store.settings, connection_limits(store.settings)
    app = make_app(store)
    logging.getLogger("aiohttp.server").addFilter(errors.is_worth_logging)
    runner = Runner(app, app[INSTANCE], handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, settings.host, settings.port, backlog=4_096, reuse_address=True)
    try:
        await site.start()
    except OSError as error:
        await runner.cleanup()
        raise cannot_listen(settings.host, settings.port, error) from None
    _collect_rarely()
    log.info("serving", extra={"instance": store.instance, "url": _address(runner), **_told(limits)})
    await stopping.wait()
    log.info("stopping", extra={"instance": store.instance})
    app[INSTANCE].drain.has_begun = True
    await site.stop()
    await app[INSTANCE].drain.run()
    await runner.cleanup()


def _collect_rarely() -> None:
    """Messages make no cycles, and looking for some in mid-delivery is latency: what is there now is left alone,
    and the rest is looked through less often than by default."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, 20, 20)


def _told(limits: ConnectionLimits) -> dict[str, int]:
    return {
        "open_files": limits.open_files,
        "max_connections": limits.connections,
        "max_connections_per_address": limits.per_address,
    }


def _address(runner: web.AppRunner) -> str:
    host, port = runner.addresses[0][:2]
    return f"http://{host}:{port}"
