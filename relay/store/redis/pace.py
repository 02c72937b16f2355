"""The pace of exchanges: immediate while there are few, spaced when there are many."""

import time
from collections.abc import Callable

APART_S = 0.002  # of exchanges that follow each other for long: what comes meanwhile shares the next one
FREE_PER_S = 300  # so many need not be apart
FREE_AT_ONCE = 15  # nor these, after a rest


class Pace:
    """An exchange costs about the same whatever it carries, so moderate load must not cause one for each message.

    It is a token bucket: a single conversation is never slowed, and only exchanges beyond the bucket are spaced.
    """

    __slots__ = ("_began_at", "_clock", "_free")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._free = float(FREE_AT_ONCE)
        self._began_at = clock()  # when the last exchange began

    def wait_s(self) -> float:
        """How long the next exchange should wait for more."""
        since_s = self._clock() - self._began_at
        if self._free + since_s * FREE_PER_S >= 1:
            return 0.0
        return max(0.0, APART_S - since_s)

    def began(self) -> None:
        """An exchange has begun."""
        now = self._clock()
        self._free = max(0.0, min(FREE_AT_ONCE, self._free + (now - self._began_at) * FREE_PER_S) - 1)
        self._began_at = now
