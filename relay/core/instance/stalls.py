"""Stalls: after a stop, a process must not treat what it reads as new; it may have been sent long ago."""

from collections.abc import Callable

STALL_MS = 1_000  # a loop that has not turned for so long was stopped, or might as well have been


class Stalls:
    """Notices stops by gaps between ticks, which come several times a second."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._turned_ms = now_ms()
        self._stopped_ms = 0  # the last turn before a stall
        self._went_on_ms = 0  # and the first one after it

    def turn(self) -> None:
        now_ms = self._now_ms()
        if now_ms - self._turned_ms > STALL_MS:
            self._stopped_ms, self._went_on_ms = self._turned_ms, now_ms
        self._turned_ms = now_ms

    def sent_ms(self) -> int:
        """When a frame that is read now may have been sent, at the earliest that matters."""
        now_ms = self._now_ms()
        if now_ms - self._turned_ms > STALL_MS:
            return self._turned_ms
        return self._stopped_ms if now_ms - self._went_on_ms < STALL_MS else now_ms
