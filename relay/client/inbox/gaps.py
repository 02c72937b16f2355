"""Gaps in the sequence numbers of a thread."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from relay.client.connection.frames import Delivery

log = logging.getLogger(__name__)

MAX_THREADS = 10_000  # whose last number is remembered


@dataclass(frozen=True, slots=True)
class Gap:
    """Sequence numbers that did not arrive (`missing`): they expired, died, or come later. `Agent.sync` says more.

    >>> Gap("acme/bob", "t", 3, 5).missing
    range(3, 5)
    """

    sender: str
    thread: str | None
    expected: int
    got: int

    @property
    def missing(self) -> range:
        return range(self.expected, self.got)


class Gaps:
    """Compares each message with the one before it in its thread."""

    def __init__(self, report: Callable[[Gap], None]) -> None:
        self._report = report
        self._last: dict[tuple[str, str | None], int] = {}

    def look(self, delivery: Delivery) -> None:
        key = delivery.sender, delivery.thread
        last = self._last.get(key)
        if last is not None and delivery.seq > last + 1:
            self._tell(Gap(delivery.sender, delivery.thread, last + 1, delivery.seq))
        if last is None or delivery.seq > last or (delivery.seq == 1 and delivery.attempt == 1):
            self._last.pop(key, None)
            self._last[key] = delivery.seq
            if len(self._last) > MAX_THREADS:
                del self._last[next(iter(self._last))]

    def _tell(self, gap: Gap) -> None:
        """Whatever becomes of the report, the message is handled."""
        try:
            self._report(gap)
        except Exception:
            log.exception("on_gap failed for %s", gap)
