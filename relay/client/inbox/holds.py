"""The messages that this agent holds. Each is settled once, in the session that delivered it last."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any

from relay.client import payloads
from relay.client.clock import Clock, Timer
from relay.client.connection.frames import Delivery, Refusal
from relay.client.inbox.message import Key, Message
from relay.client.inbox.repeats import Repeats
from relay.client.inbox.settling import Settling
from relay.client.journal import Journal
from relay.client.keys.security import Guard

log = logging.getLogger(__name__)

TOUCH_EVERY_S = 10.0
RETRY_S = (10.0, 600.0)  # what the relay does by itself: from 10 s doubling by attempt


class Holds:
    """Guarantees: a message is acked only after it was handled and recorded. A recorded message is not handled
    again; a failed one is."""

    def __init__(self, journal: Journal, clock: Clock, settling: Settling, guard: Guard) -> None:
        self._journal = journal
        self._clock = clock
        self._settling = settling
        self._guard = guard
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._repeats = Repeats(journal)
        self._held: dict[Key, Message[Any]] = {}
        self._session = 0
        self._done: list[tuple[Message[Any], bytes | None]] = []
        self._touching: Timer | None = None
        self._touch_every_s = TOUCH_EVERY_S
        self.has_own_mailbox = False  # what is given back comes here again, and to nobody else

    async def open(self, ack_timeout_s: float | None) -> None:
        await self._repeats.open()
        if ack_timeout_s:
            self._touch_every_s = min(TOUCH_EVERY_S, ack_timeout_s / 3)
        self._touching = self._clock.call_later(self._touch_every_s, self._touch)

    def close(self) -> None:
        if self._touching is not None:
            self._touching.cancel()

    def _touch(self) -> None:
        """Extends all current holds, and schedules the next time."""
        self._touching = self._clock.call_later(self._touch_every_s, self._touch)
        entries = [message.entry for message in self._held.values() if self._is_current(message)]
        self._settling.touch(entries, extend_s=max(30.0, 3 * self._touch_every_s))

    def _is_current(self, message: Message[Any]) -> bool:
        """Whether it can be settled: else it comes again."""
        return message._session == self._session

    # -- what comes

    def session_began(self, unhandled: Iterable[Message[Any]]) -> None:
        """Messages that no handler has yet are delivered again."""
        self._session += 1
        self._settling.session_began()
        for message in unhandled:
            self._held.pop(message._key, None)

    def knows(self, delivery: Delivery) -> bool:
        """Whether it came before. What is held is settled in this session then; what was handled is settled now."""
        key = delivery.sender, delivery.id
        held = self._held.get(key)
        if held is not None:
            held._came_again(delivery, self._session)
        elif key in self._repeats:
            self._say_done(delivery.entry, delivery.request, self._repeats.reply_to(key))
        else:
            return False
        return True

    def hold(self, delivery: Delivery) -> Message[Any]:
        message: Message[Any] = Message(self, delivery, self._session)
        self._held[message._key] = message
        return message

    # -- how messages are settled

    def call(self, step: Callable[..., None], *values: Any) -> None:
        """For messages, which are settled from any thread."""
        if threading.get_ident() == self._thread:
            step(*values)
        else:
            self._loop.call_soon_threadsafe(step, *values)

    def finished(self, message: Message[Any], reply: bytes | None) -> None:
        """Handled. It is noted first, and acked once that is kept."""
        if message._is_settled:
            return
        message._is_settled = True
        if message._also:
            self._finish_together(message, reply)
            return
        self._repeats.note(message._key, reply)
        self._done.append((message, reply))
        if len(self._done) == 1:
            asyncio.get_running_loop().call_soon(self._keep_done)
        if message._route is not None and message._route.order is not None:
            message._route.done(message)

    def _keep_done(self) -> None:
        done, self._done = self._done, []
        self._journal.then(lambda: self._confirm(done))

    def _finish_together(self, message: Message[Any], reply: bytes | None) -> None:
        """With statements of the handler's own: if one of them is wrong, the handler has failed."""
        wrong: list[Exception] = []
        unit = [*(message._also or ()), self._repeats.noting(message._key, reply)]

        def kept() -> None:
            if wrong:
                self._repeats.forget(message._key)
                self._fail(message, f"{type(wrong[0]).__name__}: {wrong[0]}", True, None)
                return
            self._confirm([(message, reply)])
            if message._route is not None:
                message._route.done(message)

        self._journal.unit(unit, wrong.append)
        self._journal.then(kept)

    def _confirm(self, done: list[tuple[Message[Any], bytes | None]]) -> None:
        for message, reply in done:
            self._held.pop(message._key, None)
            if self._is_current(message):
                self._say_done(message.entry, message.is_request, reply)

    def _say_done(self, entry: str, is_request: bool, reply: bytes | None) -> None:
        if is_request and reply is not None:
            self._settling.reply(entry, reply)
        else:
            self._settling.ack(entry)

    def encode_reply(self, message: Message[Any], value: Any) -> bytes:
        return self._guard.seal_reply(message, payloads.encode(value))

    def part(self, message: Message[Any], payload: bytes) -> None:
        """A part of the answer to a request."""
        if self._is_current(message):
            self._settling.reply(message.entry, payload, more=True)

    def failed(self, message: Message[Any], why: str, retry: bool, after_s: float | None) -> None:
        if not message._is_settled:
            message._is_settled = True
            self._fail(message, why, retry, after_s)

    def _fail(self, message: Message[Any], why: str, retry: bool, after_s: float | None) -> None:
        self._held.pop(message._key, None)
        delay_s = after_s
        if (route := message._route) is not None and retry and route.has_thread(message):
            pause_s = min(RETRY_S[1], RETRY_S[0] * 2 ** min(message.attempt - 1, 30)) if after_s is None else after_s
            route.failed(message, self._clock.now() + pause_s)
            if self.has_own_mailbox:
                delay_s = 0.0  # it rests here: behind a full window it could not come in time
        elif route is not None:
            route.done(message)
        if self._is_current(message):
            self._settling.nack(message.entry, why, retry, delay_s)

    def release(self, message: Message[Any]) -> None:
        if message._is_settled:
            return
        message._is_settled = True
        self._held.pop(message._key, None)
        if message._route is not None:
            message._route.done(message)
        if self._is_current(message):
            self._settling.release(message.entry)

    # -- what the relay refuses

    def refused(self, refusals: list[Refusal]) -> None:
        """An entry could not be settled. What somebody else has now, or what is gone, needs nothing."""
        for refusal in refusals:
            if refusal.entry is not None and refusal.retryable:
                log.warning("%s could not be settled: %s", refusal.entry, refusal.code)
                pause_s = (refusal.retry_after_ms or 1_000) / 1_000
                self._clock.call_later(pause_s, self._settle_again(refusal.entry, self._session))

    def _settle_again(self, entry: str, session: int) -> Callable[[], None]:
        """Given back, it comes again at once: what was handled is known by then and acked, or answered, once more."""

        def again() -> None:
            is_held = any(message.entry == entry for message in self._held.values())
            if session == self._session and not is_held:
                self._settling.release(entry)

        return again
