"""The store's time, so that instances with different clocks agree."""

import time

_NS_PER_MS = 1_000_000
_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # goes on while the machine sleeps


class Clock:
    """Unix milliseconds by the clock of Redis: what the server shows, and how long ago that was.

    How long is counted by a clock that nobody can set. The time of this machine may jump between two looks at the
    server, and instances that disagree by seconds write into different buckets of the dedup window.
    """

    def __init__(self) -> None:
        self._offset_ms = time.time_ns() // _NS_PER_MS - self.own_ms()

    def now_ms(self) -> int:
        return self.own_ms() + self._offset_ms

    @staticmethod
    def own_ms() -> int:
        """Since this machine has started."""
        return time.clock_gettime_ns(_BOOT) // _NS_PER_MS

    def heard(self, server_ms: int, asked_ms: int, heard_ms: int) -> None:
        """The server's time at some moment between two of this machine's. A slow answer proves and changes little:
        on one machine, or with clocks in step, nothing is ever corrected."""
        self._offset_ms = min(max(self._offset_ms, server_ms - heard_ms), server_ms - asked_ms)
