"""Turns: reads large input piece by piece, so that the rest of the instance is not held up."""

import asyncio
import time
from collections import deque
from collections.abc import Callable

A_TURN_S = 0.005  # what all of them together may have of one turn of the event loop


class Turns:
    """Connections read on in turn. Their number does not make a turn of the event loop much longer."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_due = False

    def wait(self, read_on: Callable[[], None]) -> None:
        """Calls this when its turn has come."""
        self._waiting.append(read_on)
        self._ask()

    def _ask(self) -> None:
        if self._waiting and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._go_round)

    def _go_round(self) -> None:
        self._is_due = False
        until = time.monotonic() + A_TURN_S
        for _ in range(len(self._waiting)):  # whoever comes back meanwhile waits for the next turn
            self._waiting.popleft()()
            if time.monotonic() >= until:
                break
        self._ask()
