"""A clock that tests move."""

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta

Callback = Callable[[], None]


class _Timer:
    def __init__(self, clock: "HandClock", due: float, callback: Callback) -> None:
        self._clock = clock
        self.due = due
        self.callback = callback
        self.handle: asyncio.TimerHandle | None = None

    def cancel(self) -> None:
        self._clock._forget(self)


class HandClock:
    """Follows the machine's clock. A test can advance it: everything that is due by then happens at once, in order.

    >>> before = relay.clock.now()
    >>> relay.clock.advance(days=8)
    >>> round(relay.clock.now() - before) == 8 * 86_400
    True
    """

    def __init__(self) -> None:
        self._ahead_s = 0.0
        self._timers: set[_Timer] = set()

    def now(self) -> float:
        """Unix seconds.

        >>> relay.clock.now() > 1_700_000_000
        True
        """
        return time.time() + self._ahead_s

    def call_later(self, delay_s: float, callback: Callback) -> _Timer:
        """Calls back when the time has come, by itself or because the clock was moved.

        >>> rung = []
        >>> timer = relay.clock.call_later(60, lambda: rung.append("rung"))
        >>> relay.clock.advance(minutes=2)
        >>> rung
        ['rung']
        """
        timer = _Timer(self, self.now() + delay_s, callback)
        self._timers.add(timer)
        timer.handle = asyncio.get_running_loop().call_later(max(0.0, delay_s), self._ring, timer)
        return timer

    def advance(self, **span: float) -> None:
        """Moves the clock: `advance(days=8)`, with the words of `timedelta`.

        >>> relay.clock.advance(hours=1)
        """
        self._ahead_s += timedelta(**span).total_seconds()
        now = self.now()
        for timer in sorted(self._timers, key=lambda one: one.due):
            if timer.due <= now:
                self._ring(timer)
            elif timer in self._timers:
                assert timer.handle is not None
                timer.handle.cancel()
                timer.handle = asyncio.get_running_loop().call_later(timer.due - now, self._ring, timer)

    def _ring(self, timer: _Timer) -> None:
        if timer in self._timers:
            self._forget(timer)
            timer.callback()

    def _forget(self, timer: _Timer) -> None:
        self._timers.discard(timer)
        if timer.handle is not None:
            timer.handle.cancel()
