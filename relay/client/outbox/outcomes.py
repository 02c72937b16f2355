"""How a message can end. `Sent.ended()` returns one of these."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Delivered:
    """The recipient handled the message and acked it.

    >>> @bob.on()
    ... async def handle(message):
    ...     pass
    >>> sent = await alice.send("bob", "hello")
    >>> match await sent.ended():
    ...     case Delivered(attempt=attempt):
    ...         print("attempt", attempt)
    attempt 1
    """

    attempt: int = 1
    was_stored: bool = False


@dataclass(frozen=True, slots=True)
class Dead:
    """The message is in the recipient's dead-letter box.

    >>> @bob.on()
    ... async def handle(message):
    ...     raise Reject("cannot read it")
    >>> sent = await alice.send("bob", "hello")
    >>> await sent.ended()
    Dead(reason='cannot read it', attempt=1)
    """

    reason: str = ""
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Expired:
    """The message expired before it was acked.

    >>> sent = await alice.send("carol", "lunch?", ttl=timedelta(hours=1))
    >>> await sent.accepted()
    'memory'
    >>> relay.clock.advance(hours=2)
    >>> await sent.ended()
    Expired()
    """


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The sender cancelled the message.

    >>> sent = await alice.send("carol", "forget it")
    >>> await sent.accepted()
    'memory'
    >>> await sent.cancel()
    True
    >>> await sent.ended()
    Cancelled()
    """


End = Delivered | Dead | Expired | Cancelled
