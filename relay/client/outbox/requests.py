"""Requests: messages that wait for a reply, or until it is known that none will come."""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import quote

import msgspec

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
POLL_PAUSE_S = 0.1  # between two polls, also when the relay answers at once
MAX_UNREAD = 2_000  # parts that wait for a slow asker: twice what the relay lets a reply have
ACKED = "it was acked without a reply"
NO_REPLY = "no reply came in time"

Item = tuple[bytes, bool]  # a payload, and whether more follows


class _Pending:
    """A request that somebody waits for. Only replies of the agent that was asked come here, each once."""

    def __init__(self, to: str) -> None:
        self.to = to
        self.news: asyncio.Queue[Delivery | ClientError] = asyncio.Queue()
        self._seen: set[str] = set()  # ids of replies: they come again after a reconnect

    def take(self, reply: Delivery) -> None:
        if reply.sender != self.to:
            log.warning("a reply of %s to %s is dropped: it was not asked", reply.sender, reply.reply_to)
        elif self.news.qsize() >= MAX_UNREAD:
            log.warning("a reply of %s to %s is dropped: too many wait", reply.sender, reply.reply_to)
        elif reply.id not in self._seen:
            self._seen.add(reply.id)
            self.news.put_nowait(reply)


class _Task(msgspec.Struct):
    """A request as the relay shows it over HTTP. In other answers nothing is known of it."""

    state: str = ""
    parts: list[Any] = []
    reply: Any = None


class Requests:
    """Replies come to the agent's own mailbox. An agent that shares its mailbox, or has none, asks over HTTP."""

    def __init__(self, outbox: Outbox, calls: Calls, guard: Guard, clock: Clock) -> None:
        self._outbox = outbox
        self._calls = calls
        self._guard = guard
        self._clock = clock
        self._waiting: dict[str, _Pending] = {}

    def new_id(self) -> str:
        return PREFIX + secrets.token_hex(10)

    def take_reply(self, delivery: Delivery) -> bool:
        """Whether it is a reply to a request of ours. One that nobody waits for any more is dropped."""
        assert delivery.reply_to is not None
        pending = self._waiting.get(delivery.reply_to)
        if pending is not None:
            pending.take(delivery)
        return pending is not None or (delivery.id.startswith("reply:") and delivery.reply_to.startswith(PREFIX))

    def close(self, error: ClientError) -> None:
        for pending in self._waiting.values():
            pending.news.put_nowait(error)

    # -- over the mailbox

    async def by_mailbox(
        self, id: str, put: Callable[[], Sent], limit_s: float, streams: bool, sealed: bool
    ) -> AsyncIterator[Item]:
        """The payloads of the reply. Raises what ends it without one, and TimeoutError after the limit, which for a
        stream counts from part to part."""
        sent = put()
        pending = self._waiting[id] = _Pending(self._guard.whole(sent.to))
        watcher = asyncio.create_task(self._watch(sent, pending))
        until, more = _now() + limit_s, True
        try:
            while more:
                payload, more = await self._next(sent, pending, until, sealed)
                yield payload, more
                until = _now() + limit_s if streams else until
        finally:
            watcher.cancel()
            del self._waiting[id]
            self._outbox.end(sent, Expired())

    async def _next(self, sent: Sent, pending: _Pending, until: float, sealed: bool) -> Item:
        """The next part; what cannot be what was asked for is passed over."""
        try:
            async with asyncio.timeout_at(until):
                while True:
                    found = await pending.news.get()
                    if isinstance(found, ClientError):
                        raise found
                    if (payload := await self._payload(sent, found, sealed)) is not None:
                        return payload, found.more
        except TimeoutError:
            if sent.is_ended:
                raise Unanswered(ACKED) from None
            raise TimeoutError(NO_REPLY) from None

    async def _payload(self, sent: Sent, found: Delivery, sealed: bool) -> bytes | None:
        """What the recipient answered; None if that is not sealed as the request was."""
        try:
            return await self._guard.opened(found, sent.id, sealed)
        except CannotOpen as error:
            if not sealed:
                raise
            log.warning("a reply of %s to %s is dropped: %s", found.sender, sent.id, error)
            return None

    async def _watch(self, sent: Sent, pending: _Pending) -> None:
        try:
            end = await sent.ended()
        except ClientError as error:
            pending.news.put_nowait(error)
            return
        if isinstance(end, Delivered):
            await self._wait_for_reply(sent)
        pending.news.put_nowait(_as_error(end))

    async def _wait_for_reply(self, sent: Sent) -> None:
        """Returns when it is sure that no reply is on its way."""
        try:
            while True:
                status, found = await self._calls.call("GET", f"{_task_path(sent.id)}?wait_s={POLL_S:.0f}")
                state = _task(found).state
                if status != 200 or state == "acked":
                    return
                if state == "replied":
                    await asyncio.Event().wait()  # it is on its way to the mailbox, and cancels this
                await asyncio.sleep(POLL_PAUSE_S)
        except ClientError:
            await sleep(self._clock, REPLY_GRACE_S)

    # -- over HTTP

    async def by_http(
        self, to: str, message: dict[str, Any], limit_s: float, streams: bool, sealed: bool
    ) -> AsyncIterator[Item]:
        """The payloads of the reply, fetched over HTTP: for agents that cannot receive replies."""
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
            task, call = _task(found), ("GET", _task_path(id), None)
            for part in task.parts[seen:]:
                yield await self._opened(to, id, part, sealed), True
                seen, until = seen + 1, _now() + limit_s if streams else until
            if task.state == "replied":
                yield await self._opened(to, id, task.reply, sealed), False
                return
            if task.state in _END:
                raise _as_error(_END[task.state])
            await asyncio.sleep(min(POLL_PAUSE_S, max(0.0, until - _now())))

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


def _task_path(id: str) -> str:
    return f"/v1/tasks/{quote(id, safe='')}"


def _task(answer: dict[str, Any]) -> _Task:
    try:
        return msgspec.convert(answer, _Task)
    except msgspec.ValidationError:
        return _Task()


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
