"""Routes: which handler gets a message, and in what order."""

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Literal

from relay.client import payloads
from relay.client.clock import Clock, Timer
from relay.client.connection.link import Output
from relay.client.inbox.message import Key, Message

Order = Literal["thread"] | None
Thread = tuple[str, str]

GIVE_UP_S = 30.0  # a thread waits so long for a message of it that failed and should come again


@dataclass(slots=True)
class Failure:
    """A message that failed: its thread waits until it has come again."""

    thread: Thread
    not_before: float
    message: Message[Any] | None = None  # it has come again, and rests until its time
    timer: Timer | None = None


class Route:
    """Messages of some types wait here for their handler; those of one thread in sequence, if requested."""

    def __init__(
        self, pattern: str, order: Order, clock: Clock, output: Output, decode: payloads.Decode = payloads.plain
    ) -> None:
        self.pattern = pattern
        self.order = order
        self._clock = clock
        self._output = output
        self._decode = decode
        self._ready: deque[Message[Any]] = deque()
        self._thread_queues: dict[Thread, deque[Message[Any]]] = {}  # of those with a message ready or being handled
        self._failures: dict[Key, Failure] = {}
        self._idle: deque[asyncio.Future[None]] = deque()
        self._error: Exception | None = None

    def matches(self, kind: str | None) -> bool:
        return self.pattern == "*" or _matches(kind or "", self.pattern)

    def put(self, message: Message[Any]) -> None:
        message._route = self
        message._decode = self._decode
        if self.order is None or message.thread is None:
            self._make_ready(message)
        elif (failure := self._failures.get(message._key)) is not None:
            self._put_again(failure, message)
        elif (queue := self._thread_queues.get(_thread(message))) is not None:
            queue.append(message)
        else:
            self._thread_queues[_thread(message)] = deque()
            self._make_ready(message)

    def _make_ready(self, message: Message[Any]) -> None:
        self._ready.append(message)
        self._wake()

    async def get(self) -> Message[Any]:
        """The next message. Raises when there will be none any more."""
        while not self._ready:
            if self._error is not None:
                raise self._error
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append(waiting)
            await waiting
        return self._ready.popleft()

    def done(self, message: Message[Any]) -> None:
        """The next message of its thread may begin."""
        if self.order is not None and message.thread is not None:
            self._go_on(_thread(message))

    def _go_on(self, thread: Thread) -> None:
        queue = self._thread_queues.get(thread)
        if queue:
            self._make_ready(queue.popleft())
        elif queue is not None:
            del self._thread_queues[thread]

    # -- messages that failed

    def has_thread(self, message: Message[Any]) -> bool:
        """Whether others may have to wait for it."""
        return self.order is not None and message.thread is not None

    def failed(self, message: Message[Any], not_before: float) -> None:
        """It comes again, and is not handled before that time: the rest of its thread waits."""
        failure = self._failures[message._key] = Failure(_thread(message), not_before)
        self._plan_to_give_up(message._key, failure)

    def _plan_to_give_up(self, key: Key, failure: Failure) -> None:
        pause_s = max(0.0, failure.not_before - self._clock.now()) + GIVE_UP_S
        failure.timer = self._clock.call_later(pause_s, lambda: self._give_up(key, failure))

    def _give_up(self, key: Key, failure: Failure) -> None:
        """It died, or went to somebody else. While there is no session it cannot come."""
        if not self._output.is_live():
            self._plan_to_give_up(key, failure)
        elif self._failures.get(key) is failure:
            del self._failures[key]
            self._go_on(failure.thread)

    def _put_again(self, failure: Failure, message: Message[Any]) -> None:
        if failure.timer is not None:
            failure.timer.cancel()
        failure.message = message
        failure.timer = self._clock.call_later(failure.not_before - self._clock.now(), lambda: self._rested(message))

    def _rested(self, message: Message[Any]) -> None:
        del self._failures[message._key]
        self._make_ready(message)

    # -- its end

    def purge(self) -> Iterable[Message[Any]]:
        """The session is over: what no handler has yet comes again, in order."""
        resting = [self._wake_up(key, failure) for key, failure in self._failures.items() if failure.message]
        waiting = [*self._ready, *resting, *(message for queue in self._thread_queues.values() for message in queue)]
        begun = set(self._thread_queues) - {_thread(message) for message in self._ready if message.thread is not None}
        self._ready.clear()
        self._thread_queues = {thread: deque() for thread in begun}
        return waiting

    def _wake_up(self, key: Key, failure: Failure) -> Message[Any]:
        """It rested; it must come once more, and its time is the same."""
        message, failure.message = failure.message, None
        if failure.timer is not None:
            failure.timer.cancel()
        self._plan_to_give_up(key, failure)
        assert message is not None
        return message

    def close(self, error: Exception) -> None:
        self._error = error
        for failure in self._failures.values():
            if failure.timer is not None:
                failure.timer.cancel()
        while self._idle:
            self._wake()

    def _wake(self) -> None:
        while self._idle:
            waiting = self._idle.popleft()
            if not waiting.done():
                waiting.set_result(None)
                return


def _thread(message: Message[Any]) -> Thread:
    return message.sender, message.thread or ""


@lru_cache(maxsize=10_000)
def _matches(kind: str, pattern: str) -> bool:
    return fnmatchcase(kind, pattern)
