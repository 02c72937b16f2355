"""An agent sends."""

from collections.abc import Iterable
from typing import Any

from relay.client.agent.needs_engine import NeedsEngine
from relay.client.outbox.sent import Sent
from relay.client.spans import Span, fields, maybe_seconds


class Sending(NeedsEngine):
    """Messages stay in the outbox until their outcome is known."""

    async def send(
        self,
        to: str,
        payload: Any,
        *,
        id: str | None = None,
        type: str | None = None,
        thread: str | None = None,
        ttl: Span | None = None,
        delay: Span | None = None,
        priority: int = 0,
        max_attempts: int = 0,
        ack_timeout: Span | None = None,
        reply_to: str | None = None,
        headers: dict[str, str] | None = None,
        sealed: bool = False,
    ) -> Sent:
        """Puts a message into the outbox, and returns once it is there: on disk, if the outbox is a file.

        It goes out by itself, also after the relay or this process was away. The same `to` and `id` again is the same
        message. Raises OutboxFull if the agent does not wait, OutboxFailed if it cannot be written.

        >>> sent = await alice.send("bob", {"n": 1}, thread="t", ttl=timedelta(days=1))
        >>> await sent.accepted()
        'memory'
        """
        options = fields(
            type=type,
            thread=thread,
            priority=priority or None,
            max_attempts=max_attempts or None,
            ack_timeout_s=ack_timeout,
            reply_to=reply_to,
            headers=headers,
        )
        out = self._outgoing
        span_s, delay_s = maybe_seconds(ttl), maybe_seconds(delay)
        sent = await out.put(to, payload, id or out.new_id(), options, span_s, delay_s, sealed)
        if sent._stage == "keeping":
            await sent._kept()
        return sent

    async def send_many(
        self,
        to: str,
        items: Iterable[Any],
        *,
        type: str | None = None,
        thread: str | None = None,
        ttl: Span | None = None,
    ) -> list[Sent]:
        """Many messages to one agent, in order: one write to disk and as few frames as they fit into.

        >>> sents = await alice.send_many("bob", [1, 2, 3], thread="count")
        >>> len(sents)
        3
        """
        options = fields(type=type, thread=thread)
        found = await self._outgoing.put_many(to, items, options, maybe_seconds(ttl))
        if found and found[-1]._stage == "keeping":
            await found[-1]._kept()
        return found

    async def flush(self) -> None:
        """Waits until the relay has everything that was sent so far.

        >>> await alice.send("bob", 1)
        <Sent ... to bob: ...>
        >>> await alice.flush()
        """
        await self._engine.outbox.until_accepted()

    async def settled(self) -> None:
        """Waits until the outbox is empty: it is known of every message how it ended.

        >>> @bob.on()
        ... async def handle(message):
        ...     pass
        >>> await alice.send("bob", 1)
        <Sent ... to bob: ...>
        >>> await alice.settled()
        >>> alice.unsettled
        0
        """
        await self._engine.outbox.until_empty()

    @property
    def unsettled(self) -> int:
        """How many messages are in the outbox.

        >>> await alice.send("carol", 1)
        <Sent ... to carol: ...>
        >>> alice.unsettled
        1
        """
        return len(self._engine.outbox)

    @property
    def unsent(self) -> int:
        """How many of them the relay does not have yet.

        >>> await alice.send("carol", 1)
        <Sent ... to carol: ...>
        >>> await alice.flush()
        >>> alice.unsent, alice.unsettled
        (0, 1)
        """
        return self._engine.outbox.unsent()
