"""Metrics of workers for Prometheus, and the port that serves them."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from relay.auth import Tokens
from relay.errors import ConfigurationError, RelayError
from relay.settings import Settings
from relay.store.store import Store
from relay.store.watching.depth import Depth
from relay.telemetry.metrics import counter, labelled, registry
from relay.telemetry.scraping import check_scraper

MEASURE_EVERY_S = 5.0
OLD_AFTER_S = 3 * MEASURE_EVERY_S  # by then another process has measured the store: two must not tell of it


class WorkerMetrics(Collector):
    """One per process. Only the process that measures the store exports the metrics of the whole store."""

    def __init__(self, process: str, workers: Iterable[str], stored: Callable[[], int] = int) -> None:
        names = list(workers)
        self._rounds = Counter(dict.fromkeys(names, 0))
        self._done = Counter(dict.fromkeys(names, 0))
        self._failures = Counter(dict.fromkeys(names, 0))
        self._stored = stored  # how many answers to requests this process has put into mailboxes
        self._ended_at: dict[str, float] = {}
        self._took_s: dict[str, float] = {}
        self._depths: list[tuple[Depth, int]] = []  # by shard, with the age of its oldest message in seconds
        self._anomalies: dict[str, int] = {}  # kind -> how many were raised
        self._measured_at = 0.0
        self._registry = registry(self, process)

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def went_round(self, worker: str, done: int, took_s: float) -> None:
        self._rounds[worker] += 1
        self._done[worker] += done
        self._ended_at[worker] = time.time()
        self._took_s[worker] = took_s

    def failed(self, worker: str) -> None:
        self._failures[worker] += 1

    async def measure(self, store: Store, _shard: int, now_ms: int) -> int:
        """How much waits in each shard, and how what does not wait any more has ended."""
        depths = await asyncio.gather(*(store.depths.of(shard) for shard in range(store.keys.shards)))
        self._depths = [(depth, _age_s(depth, now_ms)) for depth in depths]
        self._anomalies = await store.anomalies.totals()
        self._measured_at = time.monotonic()
        return 0

    def collect(self) -> Iterator[Metric]:
        yield counter("relay_accepted", "messages stored: answers to requests that an instance left", self._stored())
        yield labelled("relay_worker_rounds", "rounds over all shards", "worker", self._rounds.items())
        yield labelled("relay_worker_done", "what there was to do in them", "worker", self._done.items())
        yield labelled("relay_worker_failures", "rounds that failed", "worker", self._failures.items())
        yield _by_worker("relay_worker_round_seconds", "how long the last round took", self._took_s)
        yield _by_worker("relay_worker_round_timestamp_seconds", "when the last round ended", self._ended_at)
        if time.monotonic() - self._measured_at < OLD_AFTER_S and self._depths:
            yield from of_store(self._depths)
            yield labelled("relay_anomalies", "anomalies raised", "kind", self._anomalies.items())


def of_store(measured: list[tuple[Depth, int]]) -> Iterator[Metric]:
    """By shard, its depth and the age of its oldest message; and how what does not wait any more has ended."""
    waiting = GaugeMetricFamily("relay_queue_depth", "messages in mailboxes", labels=["shard"])
    oldest = GaugeMetricFamily("relay_queue_oldest_seconds", "age of the oldest message", labels=["shard"])
    mailboxes = GaugeMetricFamily("relay_mailboxes", "mailboxes that are not empty", labels=["shard"])
    for shard, (depth, age_s) in enumerate(measured):
        waiting.add_metric([str(shard)], depth.messages)
        oldest.add_metric([str(shard)], age_s)
        mailboxes.add_metric([str(shard)], depth.mailboxes)
    yield from (waiting, oldest, mailboxes)
    depths = [depth for depth, _ in measured]
    yield counter("relay_expired", "messages that outlived their TTL", sum(one.expired for one in depths))
    yield counter("relay_dead", "messages moved to a dead-letter box", sum(one.dead for one in depths))
    yield counter("relay_cancelled", "messages taken back or deleted", sum(one.cancelled for one in depths))
    yield counter("relay_revived", "dead letters brought back", sum(one.revived for one in depths))
    unreadable = sum(one.unreadable for one in depths)
    yield counter("relay_records_unreadable", "records that nobody can read, set aside", unreadable)
    cut = sum(one.events_cut for one in depths)
    yield counter("relay_events_cut", "entries of the event log cut before an archive had read them", cut)


def _age_s(depth: Depth, now_ms: int) -> int:
    return 0 if depth.oldest_ms is None else max(0, now_ms - depth.oldest_ms) // 1_000


def _by_worker(name: str, doc: str, values: dict[str, float]) -> Metric:
    family = GaugeMetricFamily(name, doc, labels=["worker"])
    for worker, value in sorted(values.items()):
        family.add_metric([worker], value)
    return family


@asynccontextmanager
async def served(metrics: WorkerMetrics, settings: Settings) -> AsyncIterator[None]:
    """Answers /metrics and /healthz while the context lasts, if there is a port for it. Raises ConfigurationError."""
    runner = web.AppRunner(_app(metrics, settings), access_log=None)
    await runner.setup()
    try:
        if settings.metrics_port:
            await _listen(runner, settings.host, settings.metrics_port)
        yield
    finally:
        await runner.cleanup()


async def _listen(runner: web.AppRunner, host: str, port: int) -> None:
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        raise ConfigurationError(f"RELAY_METRICS_PORT: cannot listen on {host}:{port}: {error.strerror}") from None


def _app(metrics: WorkerMetrics, settings: Settings) -> web.Application:
    has_key = settings.token_secret is not None or settings.token_public_key is not None
    tokens = Tokens(settings) if has_key else None

    async def text(request: web.Request) -> web.Response:
        try:
            check_scraper(request, settings.metrics_token, tokens)
        except RelayError as error:
            return web.json_response({"error": error.as_fields()}, status=error.status)
        return web.Response(body=metrics.text(), content_type="text/plain", charset="utf-8")

    async def alive(_: web.Request) -> web.Response:
        return web.json_response({"status": "alive"})

    app = web.Application()
    app.add_routes([web.get("/metrics", text), web.get("/healthz", alive)])
    return app
