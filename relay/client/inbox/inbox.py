"""The inbox: gives every message to a handler once, and settles it when the handler has ended."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from relay.client import payloads
from relay.client.clock import Clock
from relay.client.connection.frames import Delivery
from relay.client.connection.link import Output
from relay.client.errors import CannotOpen, ClientError, KeyChanged, Reject, Retry
from relay.client.inbox.gaps import Gaps
from relay.client.inbox.handlers import Call, Handler, caller, payload_type
from relay.client.inbox.holds import Holds
from relay.client.inbox.message import Message
from relay.client.inbox.routes import Order, Route
from relay.client.inbox.settling import Settling
from relay.client.journal import Journal
from relay.client.keys.security import Guard

log = logging.getLogger(__name__)

IDLE_POLL_S = 0.01


class Inbox:
    """Guarantees: a message has one handler, which is called once, unless it fails or the agent dies."""

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        output: Output,
        guard: Guard,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._clock = clock
        self._output = output
        self._guard = guard
        self._spawn = spawn  # supervised: what dies there ends the agent
        self._settling = Settling(output)
        self.holds = Holds(journal, clock, self._settling, guard)
        self._routes: list[Route] = []
        self._parked = Route("*", None, clock, output)  # nobody is there yet to take it
        self._threads: list[ThreadPoolExecutor] = []  # of handlers that are plain functions
        self._working = 0  # handlers that have a message
        self.gaps: Gaps | None = None
        self.learn_mode: Callable[[], Coroutine[Any, Any, None]] | None = None  # whether others share the mailbox
        self.take_reply: Callable[[Delivery], bool] = lambda _: False

    def close(self, error: ClientError) -> None:
        self.holds.close()
        for route in self._routes:
            route.close(error)
        for threads in self._threads:
            threads.shutdown(wait=False, cancel_futures=True)

    async def until_idle(self) -> None:
        """Returns when no handler has a message."""
        while self._working:  # noqa: ASYNC110 - only when closing
            await asyncio.sleep(IDLE_POLL_S)

    # -- handlers

    def handle(self, handler: Handler, pattern: str, concurrency: int, order: Order) -> None:
        route = self.route(pattern, order, payloads.decoder(payload_type(handler)))
        threads = ThreadPoolExecutor(concurrency, f"handler of {pattern}")
        self._threads.append(threads)
        call = caller(handler, threads)
        if order is not None and self.learn_mode is not None:
            self._spawn(self.learn_mode())
        for _ in range(concurrency):
            self._spawn(self._work(route, call))

    def route(self, pattern: str, order: Order = None, decode: payloads.Decode = payloads.plain) -> Route:
        """A new place for messages of some types. The first that matches gets a message."""
        route = Route(pattern, order, self._clock, self._output, decode)
        self._routes.append(route)
        for message in self._parked.purge():
            self._route(message)
        return route

    def leave(self, route: Route, error: Exception) -> None:
        """Nobody takes from it any more: what waits there goes to others, or waits for them."""
        self._routes.remove(route)
        waiting = list(route.purge())
        route.close(error)
        for message in waiting:
            self._route(message)

    def can_read(self, message: Message[Any]) -> bool:
        """Whether its payload can be read; else it goes to the dead-letter box."""
        try:
            message.payload  # noqa: B018 - it is kept, once it is read
        except payloads.WrongPayload as error:
            self.holds.failed(message, f"payload: {error}", False, None)
            return False
        return True

    async def _work(self, route: Route, call: Call) -> None:
        while True:
            message = await route.get()
            self._working += 1
            try:
                await self._handle(message, call)
            finally:
                self._working -= 1

    async def _handle(self, message: Message[Any], call: Call) -> None:
        try:
            value = await call(message)
            reply = message._encoded(value) if message.is_request else None
        except Retry as error:
            self.holds.failed(message, str(error), True, error.after)
        except Reject as error:
            self.holds.failed(message, str(error) or "Reject", False, None)
        except payloads.WrongPayload as error:
            self.holds.failed(message, f"payload: {error}", False, None)
        except asyncio.CancelledError:
            if _is_cancelled():
                self.holds.release(message)
                raise
            self.holds.failed(message, "CancelledError", True, None)  # something that the handler awaited was cancelled
        except Exception as error:
            log.exception("the handler of %s failed", message)
            self.holds.failed(message, f"{type(error).__name__}: {error}"[:300], True, None)
        else:
            self.holds.finished(message, reply)

    # -- what the relay delivers

    def connected(self) -> None:
        """A session began: what no handler has yet comes again, in order."""
        self.holds.session_began([message for route in (*self._routes, self._parked) for message in route.purge()])

    def deliver(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            if self.holds.knows(delivery):
                continue
            if delivery.reply_to is not None and self.take_reply(delivery):
                self._settling.ack(delivery.entry)
            else:
                self._receive(delivery)

    def _receive(self, delivery: Delivery) -> None:
        message = self.holds.hold(delivery)
        if self.gaps is not None:
            self.gaps.look(delivery)
        if self._guard.needs_look(delivery):
            self._spawn(self._open(message))
        else:
            self._route(message)

    async def _open(self, message: Message[Any]) -> None:
        """Signatures and seals. What was sealed wrongly never fits; a key that changed may change back."""
        try:
            await self._guard.open(message)
        except CannotOpen as error:
            self.holds.failed(message, f"CannotOpen: {error}", False, None)
        except Exception as error:
            if not isinstance(error, KeyChanged):
                log.error("%s cannot be checked: %s", message, type(error).__name__)
            self.holds.failed(message, f"{type(error).__name__}: {error}"[:300], True, None)
        else:
            self._route(message)

    def _route(self, message: Message[Any]) -> None:
        for route in self._routes:
            if route.matches(message.type):
                route.put(message)
                return
        if self._routes:
            self.holds.failed(message, f"no handler for the type {message.type!r}", True, None)
        else:
            self._parked.put(message)


def _is_cancelled() -> bool:
    """Whether it is this very task that shall end."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
