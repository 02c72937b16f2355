"""One instance: the application, from its start to its drained end."""

import asyncio
import gc
import logging
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from urllib.parse import urlsplit

from aiohttp import web

from relay.auth import Tokens
from relay.connection import Connection
from relay.errors import ConfigurationError, Forbidden, Malformed, StoreUnavailable
from relay.http import activity, agents, dead, door, health, leases, messages, openapi, origins, tasks
from relay.http.a2a import card, rpc
from relay.http.calls import call
from relay.http.door import HUB, TOKENS, WAITS
from relay.hub import Hub
from relay.metrics import Metrics
from relay.settings import Settings
from relay.store.store import Store, open_store

log = logging.getLogger(__name__)

COLLECT_AFTER = 50_000  # new objects


@call(anybody=True, answers={101: None}, errors=(Malformed, Forbidden, StoreUnavailable))
async def websocket(request: web.Request) -> web.StreamResponse:
    """A session over WebSocket; it authenticates in its first frame, or by the token that came with it."""
    hub = request.app[HUB]
    if hub.draining:
        raise StoreUnavailable("this instance is stopping; come back", retry_after_ms=1_000)
    if not origin_is_allowed(request, hub.settings):
        raise Forbidden("this origin may not connect")
    return await Connection(request, hub, request.app[TOKENS]).serve()


def origin_is_allowed(request: web.Request, settings: Settings) -> bool:
    """Programs send no Origin; a browser's must be on the list, or be the relay's own page."""
    origin = request.headers.get("Origin")
    return origin is None or origin in settings.allowed_origins or urlsplit(origin).netloc == request.host


def make_app(store: Store) -> web.Application:
    """The application on an open store."""
    middlewares = [origins.preflights, door.errors]
    app = web.Application(middlewares=middlewares, client_max_size=store.settings.max_frame_bytes)
    app[HUB] = Hub(store, Metrics())
    app[TOKENS] = Tokens(store.settings)
    app[WAITS] = door.Waits()
    app.on_response_prepare.append(origins.say)
    add_routes(app)
    app.cleanup_ctx.append(_clockwork)
    return app


def add_routes(app: web.Application) -> None:
    """Every path that the relay answers."""
    app.router.add_get("/v1/ws", websocket, allow_head=False)
    for family in (messages, leases, tasks, agents, dead, activity, health, openapi, card, rpc):
        app.add_routes(family.routes)


async def _clockwork(app: web.Application) -> AsyncIterator[None]:
    """Runs the hub while the application lives; if a part of it fails, the process stops rather than limp."""
    running = asyncio.create_task(app[HUB].run(), name="hub")
    running.add_done_callback(_stop_if_failed)
    yield
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    with suppress(Exception):
        await app[HUB].store.presence.resign()


def _stop_if_failed(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and task.exception() is not None:
        log.critical("hub_failed", exc_info=task.exception())
        signal.raise_signal(signal.SIGTERM)


async def check_store(store: Store) -> None:
    """Raises ConfigurationError if the data are not for this relay. A store that is away is waited for, not ready."""
    try:
        await store.inspect()
    except StoreUnavailable as error:
        log.warning("store_is_away", extra={"error": error.message})


async def serve(settings: Settings, url: str) -> None:
    """Serves until SIGTERM or SIGINT, then drains."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    async with open_store(settings, url) as store:
        await check_store(store)
        app = make_app(store)
        logging.getLogger("aiohttp.server").addFilter(door.is_worth_logging)
        runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
        await runner.setup()
        site = web.TCPSite(runner, settings.host, settings.port, backlog=4_096, reuse_address=True)
        try:
            await site.start()
        except OSError as error:
            await runner.cleanup()
            raise ConfigurationError(f"cannot listen on {settings.host}:{settings.port}: {error.strerror}") from None
        _collect_rarely()
        log.info("serving", extra={"instance": store.instance, "url": _address(runner)})
        await stopping.wait()
        log.info("stopping", extra={"instance": store.instance})
        app[HUB].draining = True
        await site.stop()
        await app[HUB].drain()
        await runner.cleanup()


def _collect_rarely() -> None:
    """Messages make no cycles, and looking for some in mid-delivery is latency: what is there now is left alone,
    and the rest is looked through less often than by default."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, 20, 20)


def _address(runner: web.AppRunner) -> str:
    host, port = runner.addresses[0][:2]
    return f"http://{host}:{port}"
