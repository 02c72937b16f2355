"""Metrics for Prometheus. On the message path counting is an int addition; the library only reads it."""

import platform
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib.metadata import version

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from relay.protocol.close_codes import CLOSING

LATENCY_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30, 300, 3_600, 86_400)
SIZE_BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 500)
HTTP_BUCKETS_S = (0.005, 0.025, 0.1, 0.5, 2.5, 10, 60)

# The labels that are known beforehand: their counters begin at 0, so that the first increase is seen as one.
REFUSALS = (
    *("queue_full", "rate_limited", "store_unavailable", "too_large"),
    *("malformed", "forbidden", "unknown_agent"),
)
SETTLEMENTS = ("ack", "nack", "release", "touch", "reply")
WAKES = ("sent", "unheard", "late", "lost")
NOT_ADMITTED = ("too_many", "at_once", "agent", "address", "origin")
CLOSINGS = (*CLOSING, "too_large", "no_request")
DOORS = ("websocket", "http")


class Histogram:
    """Counts observations by bucket."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def observe_all(self, values: Iterable[float]) -> None:
        bounds, counts, total = self._bounds, self._counts, 0.0
        for value in values:
            counts[bisect_left(bounds, value)] += 1
            total += value
        self._sum += total

    def family(self, name: str, doc: str) -> HistogramMetricFamily:
        buckets, total = self.buckets()
        return HistogramMetricFamily(name, doc, buckets=buckets, sum_value=total)

    def buckets(self) -> tuple[list[tuple[str, float]], float]:
        """How many there were up to each bound, and the sum of all."""
        buckets: list[tuple[str, float]] = []
        count = 0
        for bound, here in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            count += here
            buckets.append((bound, count))
        return buckets, self._sum


class Metrics(Collector):
    """One per process. Names follow the events and the protocol."""

    def __init__(self, instance: str = "") -> None:
        self.accepted = 0
        self.answers = 0  # replies that came to the mailboxes of their requesters
        self.duplicate = 0
        self.refused = _zeros(REFUSALS)  # by code
        self.taken = 0
        self.taken_again = 0
        self.settled = _zeros(SETTLEMENTS)
        self.wakes = _zeros(WAKES)  # late: nothing was left; lost: found by a look
        self.receipts = 0
        self.sessions = 0
        self.connections = 0
        self.connections_refused = _zeros(NOT_ADMITTED)  # by why
        self.closed = _zeros(CLOSINGS)  # by the code in `closing`, or no_request, slow over HTTP
        self.auth_failures = _zeros(DOORS)
        self.requests: Counter[tuple[str, str, str]] = Counter()  # by method, route, status
        self.request_s: dict[str, Histogram] = {}  # by route
        self.request_errors = 0
        self.events_dropped = 0
        self.buffered_bytes = 0
        self.store_regresses = 0  # shards that were seen to have gone back in time
        self.workers_absent = False  # whether no worker goes round
        self.store_used_bytes = 0
        self.store_max_bytes = 0  # 0: no limit
        self.store_is_short = False  # whether sends are refused for want of memory
        self.depth: dict[int, tuple[int, int]] = {}  # shard -> messages, age of the oldest in seconds
        self.events_cut = 0
        self.accepted_to_taken = Histogram(LATENCY_BUCKETS_S)
        self.taken_to_acked = Histogram(LATENCY_BUCKETS_S)
        self.batch_calls = Histogram(SIZE_BUCKETS)
        self.exchange_s = Histogram(LATENCY_BUCKETS_S)
        self._registry = registry(self, instance)

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def answered(self, method: str, route: str, status: int, took_s: float | None) -> None:
        """An HTTP request is over; one that streams has no time of its own."""
        self.requests[method, route, str(status)] += 1
        if status >= 500:
            self.request_errors += 1
        if took_s is not None:
            if route not in self.request_s:
                self.request_s[route] = Histogram(HTTP_BUCKETS_S)
            self.request_s[route].observe(took_s)

    def collect(self) -> Iterator[Metric]:
        yield counter("relay_accepted", "messages stored, answers to requests among them", self.accepted + self.answers)
        yield counter("relay_duplicate", "messages that were there already", self.duplicate)
        yield labelled("relay_refused", "messages refused", "code", self.refused.items())
        yield counter("relay_taken", "messages given to a session or a puller", self.taken)
        yield counter("relay_taken_again", "of these, not for the first time", self.taken_again)
        yield labelled("relay_settled", "entries settled by their holder", "how", self.settled.items())
        yield labelled("relay_wakes", "wakes of sessions", "outcome", self.wakes.items())
        yield counter("relay_receipts", "receipts pushed to senders", self.receipts)
        yield gauge("relay_sessions", "authenticated WebSockets", self.sessions)
        yield gauge("relay_connections", "open WebSockets", self.connections)
        yield counter("relay_store_regressed", "times that a shard went back in time", self.store_regresses)
        yield gauge("relay_workers_absent", "1 while no worker goes round", self.workers_absent)
        yield gauge("relay_store_used_bytes", "memory that the store's server uses", self.store_used_bytes)
        yield gauge("relay_store_max_bytes", "maxmemory of the store's server; 0: no limit", self.store_max_bytes)
        yield gauge(
            "relay_store_short", "1 while sends are refused because the store is nearly full", self.store_is_short
        )
        refused = self.connections_refused.items()
        yield labelled("relay_connections_refused", "connections and sessions refused", "why", refused)
        yield labelled("relay_closed", "connections that the relay closed", "code", self.closed.items())
        yield labelled("relay_auth_failures", "tokens and keys refused", "door", self.auth_failures.items())
        yield counter("relay_events_dropped", "topic events that a slow reader did not get", self.events_dropped)
        yield gauge("relay_buffered_bytes", "bytes waiting for readers, or asked of the store", self.buffered_bytes)
        yield self.accepted_to_taken.family("relay_accepted_to_taken_seconds", "from accepted to given to its holder")
        yield self.taken_to_acked.family("relay_taken_to_acked_seconds", "from given to confirmed")
        yield self.batch_calls.family("relay_batch_calls", "script calls that went out together")
        yield self.exchange_s.family("relay_exchange_seconds", "time of one exchange with the store")
        yield from self._http()

    def _http(self) -> Iterator[Metric]:
        requests = CounterMetricFamily("relay_http_requests", "HTTP requests", labels=["method", "route", "status"])
        for labels, count in sorted(self.requests.items()):
            requests.add_metric(labels, count)
        yield requests
        yield counter("relay_http_errors", "HTTP requests answered with 500 or more", self.request_errors)
        seconds = HistogramMetricFamily(
            "relay_http_request_seconds", "time of HTTP requests, long polls with their wait", labels=["route"]
        )
        for route, histogram in sorted(self.request_s.items()):
            buckets, total = histogram.buckets()
            seconds.add_metric([route], buckets, total)
        yield seconds


def registry(collector: Collector, instance: str) -> CollectorRegistry:
    """The metrics of one process: its own counters, its versions, and its process statistics."""
    exported = CollectorRegistry()
    exported.register(collector)
    exported.register(BuildInfo(instance))
    ProcessCollector(registry=exported)
    return exported


class BuildInfo(Collector):
    """The version of this process, and its name in the store."""

    def __init__(self, instance: str) -> None:
        self._labels = {
            "version": version("agent-relay"),
            "python": platform.python_version(),
            "instance_id": instance,
        }

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily("relay_build_info", "always 1; what runs here", labels=list(self._labels))
        family.add_metric(list(self._labels.values()), 1)
        yield family


def _zeros(labels: Iterable[str]) -> Counter[str]:
    return Counter(dict.fromkeys(labels, 0))


def counter(name: str, doc: str, value: float) -> Metric:
    return CounterMetricFamily(name, doc, value=value)


def gauge(name: str, doc: str, value: float) -> Metric:
    return GaugeMetricFamily(name, doc, value=value)


def labelled(name: str, doc: str, label: str, values: Iterable[tuple[str, int]]) -> Metric:
    family = CounterMetricFamily(name, doc, labels=[label])
    for value, count in sorted(values):
        family.add_metric([value], count)
    return family
