"""Requests: messages that wait for a reply, or until it is known that none will come."""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import quote

from relay.client import payloads
from relay.client.clock import Clock, sleep
from relay.client.connection.calls import Calls, not_allowed, problem
from relay.client.connection.frames import Delivery
from relay.client.errors import CannotOpen, ClientError, Died, QueueFull, Refused, RequestExpired, Unanswered
from relay.client.keys.security import Guard
from relay.client.outbox.outbox import Outbox
from relay.client.outbox.outcomes import Dead, Delivered, End, Expired
from relay.client.outbox.sent import Sent

log = logging.getLogger(__name__)

PREFIX = "ask-"  # ids of requests: a reply that comes too late is known by it
REPLY_GRACE_S = 15.0  # a reply may come so long after the news that its request was acked
POLL_S = 20.0
ACKED = "it was acked without a reply"
NO_REPLY = "no reply came in time"

Item = tuple[bytes, bool]  # a payload, and whether more follows


class Requests:
    """Replies come to the agent's own mailbox. An agent that shares its mailbox, or has none, asks over HTTP."""

    def __init__(self, outbox: Outbox, calls: Calls, guard: Guard, clock: Clock) -> None:
        self._outbox = outbox
        self._calls = calls
        self._guard = guard
        self._clock = clock
        self._waiting: dict[str, asyncio.Queue[Delivery | ClientError]] = {}

    def new_id(self) -> str:
        return PREFIX + secrets.token_hex(10)

    def take_reply(self, delivery: Delivery) -> bool:
        """Whether it is a reply to a request of ours. One that nobody waits for any more is dropped."""
        assert delivery.reply_to is not None
        waiting = self._waiting.get(delivery.reply_to)
        if waiting is not None:
            waiting.put_nowait(delivery)
        return waiting is not None or (delivery.id.startswith("reply:") and delivery.reply_to.startswith(PREFIX))

    def close(self, error: ClientError) -> None:
        for waiting in self._waiting.values():
            waiting.put_nowait(error)

    # -- over the mailbox

    async def by_mailbox(
        self, id: str, put: Callable[[], Sent], limit_s: float, streams: bool, sealed: bool
    ) -> AsyncIterator[Item]:
        """The payloads of the reply. Raises what ends it without one, and TimeoutError after the limit, which for a
        stream counts from part to part."""
        waiting: asyncio.Queue[Delivery | ClientError] = asyncio.Queue()
        self._waiting[id] = waiting
        sent = put()
        watcher = asyncio.create_task(self._watch(sent, waiting))
        until, more = _now() + limit_s, True
        try:
            while more:
                found = await self._next(sent, waiting, until)
                payload = await self._payload(sent, found, sealed)
                if payload is None:
                    continue
                more = found.more
                yield payload, more
                until = _now() + limit_s if streams else until
        finally:
            watcher.cancel()
            del self._waiting[id]
            self._outbox.end(sent, Expired())

    async def _payload(self, sent: Sent, found: Delivery, sealed: bool) -> bytes | None:
        """What the recipient answered; None if the answer is not by it, or not sealed as the request was."""
        if not self._guard.is_by(found, sent.to):
            log.warning("a reply of %s to %s is dropped: it was not asked", found.sender, sent.id)
            return None
        try:
            return await self._guard.opened(found, sent.id, sealed)
        except CannotOpen as error:
            if not sealed:
                raise
            log.warning("a reply of %s to %s is dropped: %s", found.sender, sent.id, error)
            return None

    async def _next(self, sent: Sent, waiting: "asyncio.Queue[Delivery | ClientError]", until: float) -> Delivery:
        try:
            async with asyncio.timeout_at(until):
                found = await waiting.get()
        except TimeoutError:
            if sent.is_ended:
                raise Unanswered(ACKED) from None
            raise TimeoutError(NO_REPLY) from None
        if isinstance(found, ClientError):
            raise found
        return found

    async def _watch(self, sent: Sent, waiting: "asyncio.Queue[Delivery | ClientError]") -> None:
        try:
            end = await sent.ended()
        except ClientError as error:
            waiting.put_nowait(error)
            return
        if isinstance(end, Delivered):
            await self._wait_for_reply(sent)
        waiting.put_nowait(_as_error(end))

    async def _wait_for_reply(self, sent: Sent) -> None:
        """Returns when it is sure that no reply is on its way."""
        try:
            while True:
                status, found = await self._calls.call(
                    "GET", f"/v1/tasks/{quote(sent.id, safe='')}?wait_s={POLL_S:.0f}"
                )
                if status != 200 or found["state"] == "acked":
                    return
                if found["state"] == "replied":
                    await asyncio.Event().wait()  # it is on its way to the mailbox, and cancels this
        except ClientError:
            await sleep(self._clock, REPLY_GRACE_S)

    # -- over HTTP

    async def by_http(
        self, to: str, message: dict[str, Any], limit_s: float, streams: bool, sealed: bool
    ) -> AsyncIterator[Item]:
        """The same over HTTP, for agents that cannot receive replies."""
        until, seen, id = _now() + limit_s, 0, message["id"]
        messages = f"/v1/agents/{quote(to.rpartition('/')[2], safe='')}/messages"
        call: tuple[str, str, Any] = "POST", messages, message
        while True:
            left_s = until - _now()
            if left_s <= 0:
                raise await self._why_silent(f"{messages}/{quote(id, safe='')}")
            method, path, body = call
            wait_s = min(1.0 if streams else POLL_S, left_s)
            async with asyncio.timeout(left_s + 1):
                status, found = await self._calls.call(method, f"{path}?wait_s={wait_s:.3f}", body)
            _check(status, found)
            call = "GET", f"/v1/tasks/{quote(id, safe='')}", None
            for part in found.get("parts", [])[seen:]:
                yield await self._opened(to, id, part, sealed), True
                seen, until = seen + 1, _now() + limit_s if streams else until
            if found["state"] == "replied":
                yield await self._opened(to, id, found["reply"], sealed), False
                return
            if found["state"] in _END:
                raise _as_error(_END[found["state"]])

    async def _opened(self, to: str, id: str, reply: Any, sealed: bool) -> bytes:
        """Over HTTP a task has one answer: one that is not sealed as the request was raises CannotOpen."""
        answer = Delivery("", "", self._guard.whole(to), payloads.as_raw(payloads.encode(reply)))
        return await self._guard.opened(answer, id, sealed)

    async def _why_silent(self, path: str) -> Exception:
        """A reply may be on its way for some seconds after the ack, but the time is over."""
        async with asyncio.timeout(1.0):
            _, found = await self._calls.call("GET", path)
        return Unanswered(ACKED) if found.get("state") == "acked" else TimeoutError(NO_REPLY)


def _now() -> float:
    return asyncio.get_running_loop().time()


_END: dict[str, End] = {
    "dead": Dead("the request died"),
    "expired": Expired(),
    "acked": Delivered(),
    "cancelled": Expired(),
}


def _check(status: int, answer: dict[str, Any]) -> None:
    """Raises what the relay answered to a request."""
    if status < 400:
        return
    error = problem(answer)
    if error.code == "queue_full":
        raise QueueFull(error.retry_after_ms / 1_000)
    if status in (401, 403):
        raise not_allowed(answer)
    raise Refused(error.code or "unknown", error.message)


def _as_error(end: End) -> ClientError:
    if isinstance(end, Dead):
        return Died(end.reason)
    if isinstance(end, Delivered):
        return Unanswered(ACKED)
    return RequestExpired("its time was over before anybody answered")
