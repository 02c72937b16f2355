"""Lookups: asks the relay how messages ended whose receipts will not come."""

from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from relay.client.connection.calls import Calls
from relay.client.errors import ClientError
from relay.client.outbox.outcomes import Cancelled, Dead, Delivered, End, Expired
from relay.client.outbox.sent import Sent


class Lookups:
    """One at a time: there may be thousands."""

    def __init__(
        self,
        calls: Calls,
        end: Callable[[Sent, End | ClientError], None],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._calls = calls
        self._end = end
        self._spawn = spawn
        self._todo: deque[Sent] = deque()
        self._is_running = False

    def add(self, sent: Sent) -> None:
        self._todo.append(sent)
        if not self._is_running:
            self._is_running = True
            self._spawn(self._run())

    async def _run(self) -> None:
        while self._todo:
            sent = self._todo.popleft()
            if not sent.is_ended:
                with suppress(ClientError):
                    await self._look_up(sent)
        self._is_running = False

    async def _look_up(self, sent: Sent) -> None:
        found = await self._calls.where(sent) or {}
        attempt = found.get("attempt", 1)
        ends: dict[str, End] = {"acked": Delivered(attempt), "dead": Dead("", attempt)}
        ends |= {"expired": Expired(), "cancelled": Cancelled()}
        if (end := ends.get(str(found.get("state", "")))) is not None:
            self._end(sent, end)
