"""An agent receives: by handlers, or in a loop."""

from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

from relay.client.agent.needs_engine import NeedsEngine
from relay.client.errors import Closed
from relay.client.inbox.handlers import Handler
from relay.client.inbox.message import Message
from relay.client.inbox.routes import Order

AnyHandler = TypeVar("AnyHandler", bound=Handler)


class Receiving(NeedsEngine):
    """Handlers may be registered before the agent is open."""

    def __init__(self) -> None:
        super().__init__()
        self._handlers: list[tuple[Handler, str, int, Order]] = []  # registered before the agent is open

    def on(
        self, type: str = "*", *, concurrency: int = 1, ordered_by: Order = None
    ) -> Callable[[AnyHandler], AnyHandler]:
        """Makes a function the handler of messages of a type, which may have wildcards (`job.*`).

        A message is acked after the handler has returned. An exception nacks it, with the exception's name; Retry and
        Reject say more. What the handler of a request returns is the reply; an async generator replies in parts.
        At most `concurrency` messages are handled at once; with `ordered_by="thread"` those of one thread one after the
        other. The first handler that matches gets a message. A plain function runs in a thread of its own.

        >>> @bob.on("job.*", concurrency=8, ordered_by="thread")
        ... async def job(message: Message[int]) -> int:
        ...     return message.payload * 2
        >>> await alice.ask("bob", 21, type="job.double")
        42
        """

        if not isinstance(type, str):
            raise TypeError('a handler is named with parentheses: @agent.on() or @agent.on("job.*")')
        if concurrency < 1:
            raise ValueError("concurrency is how many messages are handled at once: 1 or more")

        def register(handler: AnyHandler) -> AnyHandler:
            registered = handler, type, concurrency, ordered_by
            self._handlers.append(registered)
            if self._opened is not None:
                self._opened.check_receives()
                self._opened.inbox.handle(*registered)
            return handler

        return register

    async def messages(self, type: str = "*", *, ack: bool = True) -> AsyncIterator[Message[Any]]:
        """Messages one by one. Each is acked when the next is asked for, unless it was settled, or `ack` is off.

        One whose payload cannot be read goes to the dead-letter box, unless `ack` is off.

        >>> await alice.send_many("bob", ["a", "b"])
        [<Sent ...>, <Sent ...>]
        >>> async for message in bob.messages():
        ...     print(message.payload)
        ...     if message.payload == "b":
        ...         message.ack()
        ...         break
        a
        b
        """
        self._engine.check()
        self._engine.check_receives()
        inbox = self._engine.inbox
        route = inbox.route(type)
        try:
            while True:
                message = await route.get()
                if ack and not inbox.can_read(message):
                    continue
                yield message
                if ack:
                    message.ack()
        finally:
            inbox.leave(route, Closed("nobody takes these messages any more"))
