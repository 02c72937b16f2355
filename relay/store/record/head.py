"""The head of a stored message: everything constant except the payload."""

from dataclasses import dataclass

from relay.protocol.columns import unescape


@dataclass(frozen=True, slots=True)
class Head:
    id: str
    to: str
    sender: str
    type: str  # empty if it has none, as has the thread
    thread: str
    priority: int
    bytes: int  # of the payload

    @classmethod
    def unknown(cls, address: str, size: int = 0) -> "Head":
        """Of a record of this mailbox that cannot be read."""
        return cls("", address, "", "", "", 0, size)

    @property
    def is_known(self) -> bool:
        return self.id != ""

    @classmethod
    def parse(cls, text: str) -> "Head":
        """From the columns that accept.lua stores; see shard.lua."""
        tenant, to, sender, message_id, kind, thread, priority, size = text.split("\t")
        addresses = f"{tenant}/{to}", f"{tenant}/{sender}"
        return cls(message_id, *addresses, unescape(kind), unescape(thread), int(priority), int(size))
