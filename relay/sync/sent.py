"""A message on its way, for scripts."""

from relay import client
from relay.client import End
from relay.sync.loop import LOOP


class Sent:
    """A message that is in the outbox; see `relay.client.Sent`.

    >>> sent = alice.send("bob", {"n": 1})
    >>> sent.accepted()
    'memory'
    """

    def __init__(self, sent: client.Sent) -> None:
        self._sent = sent
        self.id = sent.id
        self.to = sent.to

    @property
    def is_ended(self) -> bool:
        """Whether it is known how the message ended.

        >>> alice.send("carol", "hello").is_ended
        False
        """
        return self._sent.is_ended

    @property
    def is_duplicate(self) -> bool:
        """Whether the relay has said that it had the message already.

        >>> sent = alice.send("carol", "hello")
        >>> sent.accepted(), sent.is_duplicate
        ('memory', False)
        """
        return self._sent.is_duplicate

    @property
    def held_up_by(self) -> str | None:
        """Why the relay has not taken the message yet, such as `queue_full`.

        >>> sent = alice.send("carol", "hello")
        >>> sent.accepted(), sent.held_up_by
        ('memory', None)
        """
        return self._sent.held_up_by

    def accepted(self) -> str:
        """Waits until the relay has stored the message, and says how durably.

        >>> alice.send("bob", "hello").accepted()
        'memory'
        """
        return LOOP.call(self._sent.accepted())

    def ended(self) -> End:
        """Waits until it is known how the message ended.

        >>> @bob.on()
        ... def handle(message):
        ...     pass
        >>> alice.send("bob", "hello").ended()
        Delivered(attempt=1, was_stored=False)
        """
        return LOOP.call(self._sent.ended())

    def cancel(self) -> bool:
        """Takes the message back.

        >>> alice.send("carol", "hello").cancel()
        True
        """
        return LOOP.call(self._sent.cancel())
