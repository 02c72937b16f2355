"""Time, as the client sees it; tests have a clock of their own."""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    def now(self) -> float:
        """Unix seconds."""

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer: ...


class RealClock:
    """The machine's."""

    def now(self) -> float:
        return time.time()

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(delay_s, callback)


async def sleep(clock: Clock, delay_s: float) -> None:
    """Waits by this clock."""
    over = asyncio.Event()
    timer = clock.call_later(delay_s, over.set)
    try:
        await over.wait()
    finally:
        timer.cancel()
