"""Packs work into tasks: whole logs into few tasks, long ones in parts."""

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

from spark.sources.event_log import Extent, Range

SPLIT_ENTRIES = 1_000  # a shorter log is not worth two tasks


def packed(ranges: Iterable[Range], tasks: int) -> list[list[Range]]:
    """At most that many lots of about the same size."""
    lots: list[tuple[int, int, list[Range]]] = [(0, n, []) for n in range(tasks)]
    for part in sorted(ranges, key=lambda part: -part.entries):
        size, n, lot = heappop(lots)
        lot.append(part)
        heappush(lots, (size + part.entries, n, lot))
    return [lot for _, _, lot in lots if lot]


def whole_logs(extents: dict[int, Extent], tasks: int, since_ms: int, until_ms: int) -> Sequence[Range]:
    """All logs as they are now, between these times. A log longer than a task's fair share is split."""
    fair = max(SPLIT_ENTRIES, -(-sum(_length(log) for log in extents.values()) // tasks))
    return [part for shard, log in extents.items() for part in _parts(shard, log, fair, since_ms, until_ms)]


def _length(extent: Extent) -> int:
    return extent.last.nth - extent.removed


def _parts(shard: int, extent: Extent, fair: int, since_ms: int, until_ms: int) -> list[Range]:
    """Parts of equal time: how many entries each has is not known, so a busy hour makes a larger part."""
    if extent.first is None:
        return []
    first_ms = max(since_ms, extent.first.order[0])
    last_ms = min(until_ms, extent.last.order[0])
    if first_ms > last_ms:
        return []
    count = min(-(-_length(extent) // fair), last_ms - first_ms + 1)
    bounds = [first_ms + (last_ms + 1 - first_ms) * n // count for n in range(count + 1)]
    ends = [str(bound - 1) for bound in bounds[1:]]
    if last_ms == extent.last.order[0]:
        ends[-1] = extent.last.id
    share = _length(extent) // count
    return [Range(shard, f"{start}-0", end, share) for start, end in zip(bounds[:-1], ends, strict=True)]
