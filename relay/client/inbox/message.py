"""A message as its recipient sees it."""

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from relay.client import payloads
from relay.client.connection.frames import Delivery

if TYPE_CHECKING:
    from relay.client.inbox.holds import Holds
    from relay.client.inbox.routes import Route

Payload = TypeVar("Payload")
Key = tuple[str, str]  # sender and id: what tells messages apart


class Message(Generic[Payload]):
    """What a handler gets. `Message[Job]` gives the type of the payload, which is decoded and checked as that.

    Beside the `payload`: `id`, `entry`, `sender`, `type`, `thread`, `seq` (its number in the thread), `reply_to`,
    `headers`, `attempt` (1 + the failures before), `was_stored` (it waited in the mailbox), `is_request`,
    `sent_at_ms`, `expires_at_ms`, `is_signed` (its signature was checked against the sender's key) and `was_sealed`.

    >>> @bob.on()
    ... async def handle(message: Message[dict[str, int]]) -> None:
    ...     print(message.sender, message.payload["n"])
    >>> await (await alice.send("bob", {"n": 1})).ended()
    acme/alice 1
    Delivered(attempt=1, was_stored=False)
    """

    __slots__ = (
        *("_also", "_decode", "_delivery", "_holds", "_is_settled", "_key", "_route", "_session", "_value"),
        *("attempt", "entry", "expires_at_ms", "headers", "id", "is_request", "is_signed", "reply_to", "sender"),
        *("sent_at_ms", "seq", "thread", "type", "was_sealed", "was_stored"),
    )

    def __init__(self, holds: "Holds", delivery: Delivery, session: int) -> None:
        self._holds = holds
        self._key: Key = (delivery.sender, delivery.id)
        self._decode: payloads.Decode = payloads.plain
        self._value: Any = ...  # what the payload was read as
        self._also: list[tuple[str, tuple[Any, ...]]] | None = None
        self._is_settled = False
        self._route: Route | None = None
        self.is_signed = False
        self.was_sealed = False
        self._came(delivery, session)

    def _came(self, delivery: Delivery, session: int) -> None:
        self._delivery = delivery
        self._session = session  # in which the entry can be settled
        self.id = delivery.id
        self.entry = delivery.entry
        self.sender = delivery.sender
        self.type = delivery.type
        self.thread = delivery.thread
        self.seq = delivery.seq
        self.reply_to = delivery.reply_to
        self.headers = delivery.headers or {}
        self.attempt = delivery.attempt
        self.was_stored = delivery.was_stored
        self.is_request = delivery.request
        self.sent_at_ms = delivery.sent_at_ms
        self.expires_at_ms = delivery.expires_at_ms

    def __repr__(self) -> str:
        return f"<Message {self.id} from {self.sender}>"

    @property
    def payload(self) -> Payload:
        if self._value is ...:
            self._value = self._decode(bytes(self._delivery.payload))
        value: Payload = self._value
        return value

    @property
    def raw(self) -> bytes:
        """The payload's JSON as the sender wrote it, or as it was sealed.

        >>> await alice.send("bob", {"n": 1.50})
        <Sent ... to bob: ...>
        >>> async for message in bob.messages():
        ...     print(message.raw.decode())
        ...     break
        {"n":1.5}
        """
        return bytes(self._delivery.payload)

    def also(self, sql: str, *values: Any) -> None:
        """Runs a statement in the very transaction that notes this message as handled: exactly once, whatever dies.

        Needs an agent with an outbox file; the statement is about tables of your own in that file.

        >>> bob = relay.agent("bob", outbox=folder / "bob.db")
        >>> async with bob:
        ...     await bob.execute("CREATE TABLE IF NOT EXISTS sums (n INTEGER)")
        ...     @bob.on()
        ...     async def handle(message):
        ...         message.also("INSERT INTO sums VALUES (?)", message.payload)
        ...     await (await alice.send("bob", 7)).ended()
        ...     await bob.execute("SELECT n FROM sums")
        []
        Delivered(attempt=1, was_stored=False)
        [(7,)]
        """
        if self._also is None:
            self._also = []
        self._also.append((sql, values))

    # -- settling by hand, in a loop over messages(); from any thread

    def ack(self) -> None:
        """The message is done. Handlers need not say so: they return.

        >>> sent = await alice.send("bob", "hello")
        >>> async for message in bob.messages():
        ...     message.ack()
        ...     break
        >>> await sent.ended()
        Delivered(attempt=1, was_stored=False)
        """
        self._holds.call(self._holds.finished, self, None)

    def nack(self, why: str, *, retry: bool = True, after: float | None = None) -> None:
        """The message failed. It is delivered again `after` this many seconds, or never.

        >>> sent = await alice.send("bob", "hello")
        >>> async for message in bob.messages():
        ...     message.nack("cannot read it", retry=False)
        ...     break
        >>> await sent.ended()
        Dead(reason='cannot read it', attempt=1)
        """
        self._holds.call(self._holds.failed, self, why, retry, after)

    def release(self) -> None:
        """Gives the message back without counting a failure. It is delivered again at once, if possible elsewhere.

        >>> sent = await alice.send("bob", "hello")
        >>> async for message in bob.messages():
        ...     message.release()
        ...     break
        """
        self._holds.call(self._holds.release, self)

    def reply(self, value: Any) -> None:
        """Answers a request, and acks it.

        >>> async def answer():
        ...     async for message in bob.messages():
        ...         message.reply(message.payload + 1)
        >>> answering = asyncio.create_task(answer())
        >>> await alice.ask("bob", 1)
        2
        """
        self._holds.call(self._holds.finished, self, self._encoded(value))

    def part(self, value: Any) -> None:
        """A part of the answer to a request; more follows.

        >>> async def answer():
        ...     async for message in bob.messages():
        ...         message.part("thinking")
        ...         message.reply("done")
        >>> answering = asyncio.create_task(answer())
        >>> [part async for part in alice.ask_stream("bob", "go")]
        ['thinking', 'done']
        """
        self._holds.call(self._holds.part, self, self._encoded(value))

    # -- told by who holds it

    def _encoded(self, value: Any) -> bytes:
        """A reply to this message, sealed if the message was."""
        return self._holds.encode_reply(self, value)

    def _is_opened(self, payload: bytes) -> None:
        """It was sealed, and this was inside."""
        self.was_sealed = True
        self._delivery.payload = payloads.as_raw(payload)

    def _came_again(self, delivery: Delivery, session: int) -> None:
        """It came in a newer session, too: that is where it is settled."""
        delivery.payload = self._delivery.payload
        self._came(delivery, session)
