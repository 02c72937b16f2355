"""A message on its way: what its sender can wait for."""

import asyncio
from typing import TYPE_CHECKING, Literal

from relay.client.errors import ClientError, OutboxFailed, Refused
from relay.client.outbox.outcomes import Cancelled, End, Expired

if TYPE_CHECKING:
    from relay.client.outbox.outbox import Outbox
    from relay.client.outbox.recipient_queues import RecipientQueue

Stage = Literal["keeping", "waiting", "asked", "accepted", "ended"]
Waiting = list["asyncio.Future[None]"]


def key_of(to: str, id: str) -> tuple[str, str]:
    """The identity of a message. It has no tenant, which is always the sender's own."""
    return to.rpartition("/")[2], id


class Sent:
    """A message in the outbox. It is sent in the background, even after a crash if the outbox is a file.

    Attributes: `to`, `id`, `is_duplicate` (the relay already had it), and `held_up_by` (why the relay has not accepted
    it yet, such as `queue_full`).

    >>> sent = await alice.send("bob", {"n": 1})
    >>> await sent.accepted()
    'memory'
    >>> sent.to, sent.is_ended
    ('bob', False)
    """

    __slots__ = (
        "_body",
        "_deadline",
        "_durability",
        "_end",
        "_error",
        "_is_request",
        "_key",
        "_not_before",
        "_outbox",
        "_queue",
        "_serial",
        "_stage",
        "_waiting",
        "held_up_by",
        "id",
        "is_duplicate",
        "to",
    )

    def __init__(
        self,
        outbox: "Outbox",
        serial: int,
        to: str,
        id: str,
        body: bytes,
        deadline: float,
        not_before: float = 0.0,
        is_request: bool = False,
    ) -> None:
        self._outbox = outbox
        self._key = key_of(to, id)
        self._serial = serial  # the order of sending
        self.to = to
        self.id = id
        self.is_duplicate = False  # the relay had it already
        self.held_up_by: str | None = None  # the code of the last refusal, as long as it is tried again
        self._body = body  # the message as JSON, without its end
        self._deadline = deadline
        self._not_before = not_before
        self._is_request = is_request  # somebody waits for its reply right now: it is not kept for later
        self._stage: Stage = "keeping"
        self._queue: RecipientQueue | None = None  # in which it was asked for
        self._durability = ""
        self._end: End | None = None
        self._error: ClientError | None = None
        self._waiting: Waiting | None = None  # woken at every change

    def __repr__(self) -> str:
        return f"<Sent {self.id} to {self.to}: {self._stage}>"

    @property
    def is_ended(self) -> bool:
        """Whether it is known how the message ended.

        >>> sent = await alice.send("carol", "hello")
        >>> sent.is_ended
        False
        """
        return self._stage == "ended"

    async def accepted(self) -> str:
        """Waits until the relay has stored the message, and says how durably: memory, fsync or replica.

        Raises Refused if the relay never takes it, or if its time was over or it was taken back before; Closed if the
        connection is over for good.

        >>> sent = await alice.send("bob", "hello")
        >>> await sent.accepted()
        'memory'
        """
        while not self._durability:
            if self._end is not None:
                return _durability_of(self._end)
            await self._change()
        return self._durability

    async def ended(self) -> End:
        """Waits until it is known how the message ended: Delivered, Dead, Expired or Cancelled.

        >>> @bob.on()
        ... async def handle(message):
        ...     pass
        >>> sent = await alice.send("bob", "hello")
        >>> await sent.ended()
        Delivered(attempt=1, was_stored=False)
        """
        while self._end is None:
            await self._change()
        return self._end

    async def cancel(self) -> bool:
        """Takes the message back. False if somebody holds it right now, or if it has ended.

        >>> sent = await alice.send("carol", "hello")
        >>> await sent.cancel()
        True
        """
        return await self._outbox.cancel(self)

    async def _kept(self) -> None:
        """Waits until the message is in the outbox's file."""
        while self._stage == "keeping":
            await self._change()

    async def _reached(self, *stages: Stage) -> None:
        """Raises why it never will, in this process."""
        while self._stage not in stages:
            await self._change()

    async def _change(self) -> None:
        if self._error is not None:
            raise self._error
        changed = asyncio.get_running_loop().create_future()
        if self._waiting is None:
            self._waiting = []
        self._waiting.append(changed)
        await changed
        if self._error is not None:
            raise self._error

    # -- told by the outbox

    def _is_waiting(self) -> None:
        self._stage = "waiting"
        self._wake()

    def _is_stored(self, durability: str) -> None:
        self._stage = "accepted"
        self.held_up_by = None
        self._durability = durability
        self._wake()

    def _has_ended(self, end: End | ClientError) -> None:
        self._stage = "ended"
        if isinstance(end, ClientError):
            self._error = end
        else:
            self._end = end
        self._wake()

    def _is_hopeless(self, error: ClientError) -> None:
        """Nobody will ever hear more of it in this process; it may still be in the file."""
        if self._stage != "ended" or isinstance(error, OutboxFailed):
            self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            for one in waiting:
                if not one.done():
                    one.set_result(None)


def _durability_of(end: End) -> str:
    """Of a message that ended before the relay said that it had it. Raises Refused if it never had."""
    if isinstance(end, Expired | Cancelled):
        raise Refused(type(end).__name__.lower(), "the message ended before the relay had it")
    return "unknown"
