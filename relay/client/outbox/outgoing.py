"""Outgoing messages and requests: encoded, signed and sealed."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

import msgspec

from relay.client import payloads
from relay.client.clock import Clock
from relay.client.keys.security import Guard
from relay.client.outbox.outbox import Outbox
from relay.client.outbox.requests import Item, Requests
from relay.client.outbox.sent import Sent

DEFAULT_TTL_S = 7 * 86_400.0  # the relay's own, which a message's may only shorten
_encode = msgspec.json.Encoder().encode


class Outgoing:
    """Makes messages from payloads, and queues them."""

    def __init__(
        self,
        outbox: Outbox,
        requests: Requests,
        guard: Guard,
        clock: Clock,
        has_own_mailbox: Callable[[], Awaitable[bool]],
    ) -> None:
        self._outbox = outbox
        self._requests = requests
        self._guard = guard
        self._clock = clock
        self._has_own_mailbox = has_own_mailbox  # else a reply to this agent may come to another session
        self._id_prefix = secrets.token_hex(6)
        self._ids = 0

    def new_id(self) -> str:
        self._ids += 1
        return f"{self._id_prefix}-{self._ids}"

    async def put(
        self,
        to: str,
        payload: Any,
        id: str,
        fields: dict[str, Any],
        ttl_s: float | None,
        delay_s: float | None,
        sealed: bool,
    ) -> Sent:
        """A message, in the outbox; whether it is kept yet, its stage says."""
        known = self._outbox.find(to, id)
        if known is not None:
            return known
        if self._outbox.room.is_full():
            await self._outbox.room.wait()
        data = await self._data(to, id, payload, sealed)
        return self._put_now(to, id, data, fields, ttl_s, delay_s)

    async def put_many(self, to: str, items: Iterable[Any], fields: dict[str, Any], ttl_s: float | None) -> list[Sent]:
        """Messages with new ids, in order."""
        room, sents = self._outbox.room, []
        for item in items:
            if room.is_full():
                await room.wait()
            sents.append(self._put_now(to, self.new_id(), payloads.encode(item), fields, ttl_s, None))
        return sents

    def _put_now(
        self, to: str, id: str, payload: bytes, fields: dict[str, Any], ttl_s: float | None, delay_s: float | None
    ) -> Sent:
        now = self._clock.now()
        deadline = now + (DEFAULT_TTL_S if ttl_s is None else ttl_s)
        not_before = 0.0 if delay_s is None else now + delay_s
        return self._outbox.put(to, id, self._body(to, id, fields, payload), deadline, not_before, is_request=False)

    async def _data(self, to: str, id: str, payload: Any, sealed: bool) -> bytes:
        data = payloads.encode(payload)
        return await self._guard.seal(to, id, data) if sealed else data

    def _body(self, to: str, id: str, fields: dict[str, Any], payload: bytes) -> bytes:
        """The message without its end: what time it has left is said when it goes out."""
        message = {"id": id, "to": to, "receipt": "all", **fields} if fields else {"id": id, "to": to, "receipt": "all"}
        self._sign(to, id, message, payload)
        return b'%b,"payload":%b' % (_encode(message)[:-1], payload)

    def _sign(self, to: str, id: str, message: dict[str, Any], payload: bytes) -> None:
        if self._guard.signs:
            message["signature"] = self._guard.signature(to, id, message, payload)

    async def ask(
        self, to: str, payload: Any, fields: dict[str, Any], limit_s: float, ttl_s: float, sealed: bool, streams: bool
    ) -> AsyncIterator[Item]:
        """The payloads of a reply, and whether more follow."""
        id, began = self._requests.new_id(), asyncio.get_running_loop().time()
        async with asyncio.timeout(limit_s):
            data = await self._data(to, id, payload, sealed)
            comes_here = await self._has_own_mailbox()
        if not streams:
            limit_s -= asyncio.get_running_loop().time() - began
        ask = self._by_mailbox if comes_here else self._by_http
        async for item in ask(to, id, data, fields, limit_s, ttl_s, streams, sealed):
            yield item

    def _by_mailbox(
        self,
        to: str,
        id: str,
        data: bytes,
        fields: dict[str, Any],
        limit_s: float,
        ttl_s: float,
        streams: bool,
        sealed: bool,
    ) -> AsyncIterator[Item]:
        body = self._body(to, id, {**fields, "request": True}, data)
        deadline = self._clock.now() + ttl_s

        def put() -> Sent:
            return self._outbox.put(to, id, body, deadline, 0.0, is_request=True)

        return self._requests.by_mailbox(id, put, limit_s, streams, sealed)

    def _by_http(
        self,
        to: str,
        id: str,
        data: bytes,
        fields: dict[str, Any],
        limit_s: float,
        ttl_s: float,
        streams: bool,
        sealed: bool,
    ) -> AsyncIterator[Item]:
        message = {"id": id, "ttl_s": ttl_s, **fields}
        self._sign(to, id, message, data)
        return self._requests.by_http(to, {**message, "payload": payloads.as_raw(data)}, limit_s, streams, sealed)
