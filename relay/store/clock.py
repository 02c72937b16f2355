"""The store's time, so that instances with different clocks agree."""

import time


class Clock:
    """Unix milliseconds as Redis sees them: this machine's clock, corrected by what was last read from the server."""

    def __init__(self) -> None:
        self._offset_ms = 0

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self._offset_ms

    def set_from_server(self, server_s: int, server_us: int) -> None:
        self._offset_ms = server_s * 1_000 + server_us // 1_000 - time.time_ns() // 1_000_000
