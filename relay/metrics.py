"""What is counted, for Prometheus. Counting on the message path is an addition to an int; the library only reads it."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

LATENCY_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30, 300, 3_600, 86_400)
SIZE_BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 500)


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

    def family(self, name: str, doc: str) -> HistogramMetricFamily:
        buckets, total = [], 0
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            buckets.append((bound, total))
        return HistogramMetricFamily(name, doc, buckets=buckets, sum_value=self._sum)


class Metrics(Collector):
    """One per process. The words are those of the events and the protocol."""

    def __init__(self) -> None:
        self.accepted = 0
        self.duplicate = 0
        self.refused: Counter[str] = Counter()  # by code
        self.delivered = 0
        self.redelivered = 0
        self.settled: Counter[str] = Counter()  # by ack, nack, release, touch, reply
        self.expired = 0
        self.dead = 0
        self.wakes: Counter[str] = Counter()  # sent, unheard, late (nothing was left), lost (found by a look)
        self.receipts = 0
        self.sessions = 0
        self.connections = 0
        self.buffered_bytes = 0
        self.depth: dict[int, tuple[int, int]] = {}  # shard -> messages, age of the oldest in seconds
        self.accepted_to_delivered = Histogram(LATENCY_BUCKETS_S)
        self.delivered_to_acked = Histogram(LATENCY_BUCKETS_S)
        self.batch_calls = Histogram(SIZE_BUCKETS)
        self.exchange_s = Histogram(LATENCY_BUCKETS_S)
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        yield _counter("relay_accepted", "messages stored", self.accepted)
        yield _counter("relay_duplicate", "messages that were there already", self.duplicate)
        yield _labelled("relay_refused", "messages refused", "code", self.refused.items())
        yield _counter("relay_delivered", "messages pushed to a session", self.delivered)
        yield _counter("relay_redelivered", "of these, not for the first time", self.redelivered)
        yield _labelled("relay_settled", "entries settled by their holder", "how", self.settled.items())
        yield _counter("relay_expired", "messages that outlived their TTL, in the whole store", self.expired)
        yield _counter("relay_dead", "messages moved to a dead-letter box, in the whole store", self.dead)
        yield _labelled("relay_wakes", "wakes of sessions", "outcome", self.wakes.items())
        yield _counter("relay_receipts", "receipts pushed to senders", self.receipts)
        yield _gauge("relay_sessions", "authenticated WebSockets", self.sessions)
        yield _gauge("relay_connections", "open WebSockets", self.connections)
        yield _gauge("relay_buffered_bytes", "bytes waiting for slow readers", self.buffered_bytes)
        depth = GaugeMetricFamily("relay_queue_depth", "messages in mailboxes", labels=["shard"])
        oldest = GaugeMetricFamily("relay_queue_oldest_seconds", "age of the oldest message", labels=["shard"])
        for shard, (messages, age_s) in sorted(self.depth.items()):
            depth.add_metric([str(shard)], messages)
            oldest.add_metric([str(shard)], age_s)
        yield depth
        yield oldest
        yield self.accepted_to_delivered.family("relay_accepted_to_delivered_seconds", "from accepted to pushed")
        yield self.delivered_to_acked.family("relay_delivered_to_acked_seconds", "from pushed to confirmed")
        yield self.batch_calls.family("relay_batch_calls", "script calls that went out together")
        yield self.exchange_s.family("relay_exchange_seconds", "time of one exchange with the store")


def _counter(name: str, doc: str, value: float) -> Metric:
    return CounterMetricFamily(name, doc, value=value)


def _gauge(name: str, doc: str, value: float) -> Metric:
    return GaugeMetricFamily(name, doc, value=value)


def _labelled(name: str, doc: str, label: str, values: Iterable[tuple[str, int]]) -> Metric:
    family = CounterMetricFamily(name, doc, labels=[label])
    for value, count in sorted(values):
        family.add_metric([value], count)
    return family
