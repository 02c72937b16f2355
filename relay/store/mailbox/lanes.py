"""Lanes: which mailboxes use priorities. A call that named all lanes of each would be ten times as long."""

from relay.store.keys import ALL_LANES

NO_LANES = "0"
MAX_WIDE = 100_000  # mailboxes that are remembered; forgetting one costs it a second call


class Lanes:
    def __init__(self) -> None:
        self._wide: set[str] = set()

    def of(self, address: str) -> str:
        """The priorities to name in a call. If the mailbox uses others, the script says so and does nothing."""
        return ALL_LANES if address in self._wide else NO_LANES

    def widen(self, address: str) -> None:
        """A script has said so."""
        if len(self._wide) >= MAX_WIDE:
            self._wide.clear()
        self._wide.add(address)
