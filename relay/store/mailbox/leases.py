"""Leases: what a puller takes, and the lock tokens for it."""

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from relay.errors import Busy, StoreUnavailable
from relay.protocol.columns import escape
from relay.store.callbacks import answer_to
from relay.store.mailbox.take import NotTaken, TakeAnswer, TakeRequest, TakeResult, Taking
from relay.store.record.taken import Taken, came_at_ms
from relay.store.redis.encoder import ScriptEncoder
from relay.store.redis.pipeline import CommandPipeline
from relay.store.redis.scripts import script

PULLER = "http."  # how the consumers of pullers begin; see consumers.lua
_TOKEN = re.compile(r"([1-9]\d{0,8})\.(\d{1,15})\.([0-9p-]{1,64})\.(http\.[!-~]{1,150})")


@dataclass(frozen=True, slots=True)
class LockToken:
    """Proof of a lease: entry, attempt, time of the request, consumer."""

    attempt: int
    asked_ms: int
    entry: str
    consumer: str

    def __str__(self) -> str:
        return f"{self.attempt}.{self.asked_ms}.{self.entry}.{self.consumer}"

    @property
    def backlog_end(self) -> str:
        """Entries up to this one were stored before the puller asked."""
        return f"{self.asked_ms}-0"

    @property
    def was_stored(self) -> bool:
        return came_at_ms(self.entry) < self.asked_ms

    def held_ms(self, now_ms: int) -> int:
        """For how long the puller has had it: it was asked for before, or it came later."""
        return now_ms - max(self.asked_ms, came_at_ms(self.entry))

    @classmethod
    def parse(cls, text: str, entry: str) -> "LockToken":
        """Parses the lock token of an entry. A token of another entry is invalid."""
        match = _TOKEN.fullmatch(text)
        if match is None or match[3] != entry:
            return cls(0, 0, entry, PULLER)
        return cls(int(match[1]), int(match[2]), entry, match[4])


class Leases:
    def __init__(self, pipeline: CommandPipeline, encoder: ScriptEncoder, taking: Taking) -> None:
        self._pipeline = pipeline
        self._encoder = encoder
        self._keys = encoder.keys
        self._taking = taking

    async def take(
        self,
        address: str,
        most: int,
        most_bytes: int,
        types: list[str] | None,
        ack_timeout_ms: int,
        consumer: str | None,
        asked_ms: int,
        waited: bool = False,
    ) -> list[tuple[Taken, LockToken]]:
        """Leases up to `most` messages of about `most_bytes`, but at least one.

        Raises Busy or StoreUnavailable."""
        # Two leases of one consumer are told apart: what the first gave back is not the second's to settle.
        name = f"{PULLER}{escape(consumer or 'puller')}.{secrets.token_hex(4)}"
        escaped = None if types is None else [escape(kind) for kind in types]
        request = TakeRequest(name, most, most_bytes, ack_timeout_ms, is_puller=True, types=escaped)
        rows = await self._take(address, request)
        tokens = []
        for row in rows:
            # What is there without waiting was stored before, whatever the clocks of two machines say.
            since_ms = asked_ms if waited else max(asked_ms, came_at_ms(row.entry) + 1)
            tokens.append((row, LockToken(row.attempt, since_ms, row.entry, name)))
        return tokens

    async def _take(self, address: str, request: TakeRequest) -> list[Taken]:
        """A look for types goes on, call by call, until it has found something or is through."""
        while True:
            taken = await self._take_once(address, request)
            if taken.rows or not taken.place:
                return taken.rows
            request = replace(request, after=taken.place)

    async def _take_once(self, address: str, request: TakeRequest) -> TakeResult:
        def ask(answer: Callable[[TakeAnswer], None]) -> None:
            self._taking.take(address, lambda: request, answer)

        match await answer_to(ask):
            case NotTaken.BUSY:
                raise _busy()
            case NotTaken():
                raise StoreUnavailable("the store does not answer; what was leased comes back in time")
            case taken:
                return taken

    async def watch(self, address: str, watcher: str, lease_ms: int) -> None:
        """Asks to be woken when mail comes. Raises Busy or StoreUnavailable."""
        packet = self._encoder.packet(script("watch"), self._keys.shard(address), [address, watcher, lease_ms])
        if await self._pipeline.reply(packet) == b"busy":
            raise _busy()


def _busy() -> Busy:
    return Busy("an exclusive session serves this mailbox", retry_after_ms=5_000)
