"""The store's time, so that instances with different clocks agree."""

import time


class Clock:
    """Unix milliseconds by the clock of Redis: this machine's clock, corrected by what the server shows."""

    def __init__(self) -> None:
        self._offset_ms = 0

    def now_ms(self) -> int:
        return self.own_ms() + self._offset_ms

    @staticmethod
    def own_ms() -> int:
        """The time of this machine's clock."""
        return time.time_ns() // 1_000_000

    def heard(self, server_ms: int, asked_ms: int, heard_ms: int) -> None:
        """The server's time at some moment between two of this machine's. A slow answer proves and changes little:
        on one machine, or with clocks in step, nothing is ever corrected."""
        self._offset_ms = min(max(self._offset_ms, server_ms - heard_ms), server_ms - asked_ms)
