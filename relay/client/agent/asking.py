"""An agent asks, and waits for the reply."""

from collections.abc import AsyncIterator
from typing import Any

from relay.client import payloads
from relay.client.agent.needs_engine import NeedsEngine
from relay.client.spans import Span, fields, seconds

EXPIRY_GRACE_S = 1.0  # a request outlives its timeout, so that it is the timeout that the caller sees


class Asking(NeedsEngine):
    """A request waits for its reply, or until it is known that none will come."""

    async def ask(
        self,
        to: str,
        payload: Any,
        *,
        timeout: Span = 30.0,
        type: str | None = None,
        thread: str | None = None,
        reads: Any = Any,
        sealed: bool = False,
    ) -> Any:
        """Sends a request and returns the payload of its reply, read as the type `reads`.

        Raises Died, RequestExpired or Unanswered when no reply will come, QueueFull when the recipient's mailbox
        is full, Refused when the relay does not take it, and TimeoutError. A reply in parts is the list of them.

        >>> @bob.on("sum")
        ... async def add(message: Message[list[int]]) -> int:
        ...     return sum(message.payload)
        >>> await alice.ask("bob", [2, 2], type="sum")
        4
        """
        options, limit_s = fields(type=type, thread=thread), seconds(timeout)
        parts: list[Any] = []
        last: Any = None
        async for data, more in self._outgoing.ask(
            to, payload, options, limit_s, limit_s + EXPIRY_GRACE_S, sealed, False
        ):
            last = payloads.decoder(reads)(data)
            if more:
                parts.append(last)
        return last if not parts else parts if last is None else [*parts, last]

    async def ask_stream(
        self,
        to: str,
        payload: Any,
        *,
        timeout: Span = 60.0,
        ttl: Span = 3_600.0,
        type: str | None = None,
        thread: str | None = None,
        reads: Any = Any,
        sealed: bool = False,
    ) -> AsyncIterator[Any]:
        """Sends a request and gives the parts of its reply as they come. `timeout` is the longest silence.

        >>> @bob.on("story")
        ... async def tell(message):
        ...     yield "once"
        ...     yield "upon a time"
        >>> [part async for part in alice.ask_stream("bob", "tell me", type="story")]
        ['once', 'upon a time']
        """
        options = fields(type=type, thread=thread)
        silence_s, ttl_s = seconds(timeout), seconds(ttl)
        async for data, more in self._outgoing.ask(to, payload, options, silence_s, ttl_s, sealed, True):
            part = payloads.decoder(reads)(data) if more or data != b"null" else None
            if more or part is not None:
                yield part
