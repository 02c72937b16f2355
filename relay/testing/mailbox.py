"""A mailbox in memory: holders, order of delivery, and ends."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from relay.client.clock import Timer

if TYPE_CHECKING:
    from relay.testing.session import FakeSession


@dataclass(slots=True, eq=False)
class Entry:
    """A stored message."""

    handle: str
    number: int  # the order of arrival
    sender: str
    message: dict[str, Any]  # as it was sent
    seq: int
    accepted_at: float
    expires_at: float
    failures: int = 0
    ready_at: float = 0.0  # not delivered before
    holder: "FakeSession | None" = None
    timer: Timer | None = None  # ends a hold, or a delay

    @property
    def id(self) -> str:
        return str(self.message["id"])

    @property
    def priority(self) -> int:
        return int(self.message.get("priority", 0))

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


@dataclass(slots=True)
class Mailbox:
    """The entries of one agent."""

    address: str
    entries: dict[str, Entry] = field(default_factory=dict)
    by_id: dict[tuple[str, str], Entry] = field(default_factory=dict)
    dead: list[Entry] = field(default_factory=list)
    is_known: bool = False

    def add(self, entry: Entry) -> None:
        self.entries[entry.handle] = entry
        self.by_id[entry.sender, entry.id] = entry

    def remove(self, entry: Entry) -> None:
        del self.entries[entry.handle]
        del self.by_id[entry.sender, entry.id]

    def find(self, sender: str, id: str) -> Entry | None:
        return self.by_id.get((sender, id))

    def waiting(self, now: float) -> list[Entry]:
        """Entries that may be delivered, in order."""
        ready = [one for one in self.entries.values() if one.holder is None and one.ready_at <= now]
        return sorted(ready, key=lambda one: (-one.priority, one.number))


@dataclass(slots=True)
class Task:
    """The state of a request."""

    to: str
    parts: list[Any] = field(default_factory=list)
    reply: Any = ...
    by_http: bool = False
