"""Leases: what a puller takes, and the tokens that prove it."""

import asyncio
import re
import secrets
from dataclasses import dataclass

from relay.errors import Busy, StoreUnavailable
from relay.protocol import escape
from relay.store.batches import Line
from relay.store.calls import Calls
from relay.store.mailboxes import Mailboxes, Taken
from relay.store.scripts import script

PULLER = "http."  # how the consumers of pullers begin; see shard.lua
_TOKEN = re.compile(r"([1-9]\d{0,8})\.(\d{1,15})\.([0-9p-]{1,64})\.(http\.[!-~]{1,100})")


@dataclass(frozen=True, slots=True)
class LockToken:
    """What proves a lease: which attempt of which entry, asked for when, by which consumer."""

    attempt: int
    asked_ms: int
    entry: str
    consumer: str

    def __str__(self) -> str:
        return f"{self.attempt}.{self.asked_ms}.{self.entry}.{self.consumer}"

    @property
    def began(self) -> str:
        """What came before this was stored when the puller asked."""
        return f"{self.asked_ms}-0"

    @property
    def was_stored(self) -> bool:
        return _came_at(self.entry) < self.asked_ms

    @classmethod
    def parse(cls, text: str, entry: str) -> "LockToken":
        """The token that an entry is to be settled with. One that is not this entry's is nobody's."""
        match = _TOKEN.fullmatch(text)
        if match is None or match[3] != entry:
            return cls(0, 0, entry, PULLER)
        return cls(int(match[1]), int(match[2]), entry, match[4])


class Puller:
    """Takes once, for an HTTP call."""

    is_puller = True
    drained = True
    began = "0-0"

    def __init__(
        self, address: str, shard: int, consumer: str, most: int, types: list[str] | None, ack_timeout_ms: int
    ) -> None:
        self.address = address
        self.shard = shard
        self.name = consumer
        self.types = types
        self.ack_timeout_ms = ack_timeout_ms
        self.result: asyncio.Future[list[Taken]] = asyncio.get_running_loop().create_future()
        self._most = most

    def room(self) -> int:
        return self._most

    def known(self) -> list[str] | None:
        return None

    def taken(self, _: list[str], rows: list[Taken]) -> None:
        self.result.set_result(rows)

    def take_failed(self) -> None:
        self.result.set_exception(StoreUnavailable("the store does not answer; what was leased comes back in time"))

    def unregistered(self) -> None:
        raise AssertionError("pullers are not registered")

    def busy(self) -> None:
        self.result.set_exception(Busy("an exclusive session serves this mailbox", retry_after_ms=5_000))


class Leases:
    def __init__(self, line: Line, calls: Calls, mailboxes: Mailboxes) -> None:
        self._line = line
        self._calls = calls
        self._keys = calls.keys
        self._mailboxes = mailboxes

    async def take(
        self,
        address: str,
        most: int,
        types: list[str] | None,
        ack_timeout_ms: int,
        consumer: str | None,
        asked_ms: int,
        waited: bool = False,
    ) -> list[tuple[Taken, LockToken]]:
        """Leases up to `most` messages to whoever asked then. Raises Busy or StoreUnavailable."""
        # Two leases of one consumer are told apart: what the first gave back is not the second's to settle.
        name = f"{PULLER}{consumer or 'puller'}.{secrets.token_hex(4)}"
        escaped = None if types is None else [escape(one) for one in types]
        puller = Puller(address, self._keys.shard(address), name, most, escaped, ack_timeout_ms)
        self._mailboxes.take(puller)
        # Shielded: a caller that goes away must not stop the answer from being handed out.
        rows = await asyncio.shield(puller.result)
        tokens = []
        for row in rows:
            # What is there without waiting was stored before, whatever the clocks of two machines say.
            since_ms = asked_ms if waited else max(asked_ms, _came_at(row.entry) + 1)
            tokens.append((row, LockToken(row.attempt, since_ms, row.entry, name)))
        return tokens

    async def watch(self, address: str, watcher: str, lease_ms: int) -> None:
        """Asks to be woken when mail comes. Raises Busy or StoreUnavailable."""
        packet = self._calls.packet(script("watch"), self._keys.shard(address), [address, watcher, lease_ms])
        if await self._line.reply(packet) == b"busy":
            raise Busy("an exclusive session serves this mailbox", retry_after_ms=5_000)


def _came_at(entry: str) -> int:
    return int(entry.partition("-")[0])
