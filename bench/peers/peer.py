"""What the comparison needs of a peer: a server that runs, senders, mailboxes and recipients."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

Payload = bytes | str
Letters = Sequence[tuple[int, bytes]]  # the recipient's number and the payload
Count = Callable[[int], None]
Deliver = Callable[[Sequence[Payload]], None]


class Closable(Protocol):
    def close(self) -> None: ...


class Sender(Closable, Protocol):
    def publish(self, letters: Letters) -> None:
        """Sends them in one write. The peer's confirms are counted by whoever opened the sender."""


class Site(Protocol):
    """A peer's servers while they run, and how to work with them."""

    tells_the_end: bool  # a sender learns that its message was acked

    def cpu_s(self) -> float:
        """Processor seconds of all its processes so far."""

    def resident_bytes(self) -> int:
        """Memory of all its processes."""

    async def declare(self, numbers: range) -> None:
        """Makes these mailboxes. They are durable and empty, and nobody is connected to them."""

    async def sender(self, number: int, confirmed: Count, ended: Count) -> Sender:
        """Connects a sender; `ended` is called only where the peer tells the end."""

    async def recipient(self, number: int, delivered: Deliver) -> Closable:
        """Connects to a mailbox. What comes is shown to `delivered` and acked, one by one or as a batch."""


@dataclass(frozen=True, slots=True)
class Peer:
    """One column of the table."""

    name: str
    work: str  # what a confirm and an ack are there
    missing: Callable[[], str]  # how to install what is not on this machine; empty if it is all there
    start: Callable[[], AbstractContextManager[Site]]
