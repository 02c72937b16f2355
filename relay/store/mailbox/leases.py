"""Leases: what a puller takes, and the lock tokens for it."""

import re
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from relay.errors import Busy, StoreUnavailable
from relay.protocol.columns import escape
from relay.store.agents.rates import SEARCH
from relay.store.callbacks import answer_to
from relay.store.mailbox.take import NotTaken, TakeAnswer, TakeRequest, TakeResult, Taking
from relay.store.record.taken import Taken, came_at_ms
from relay.store.redis.encoder import ScriptEncoder
from relay.store.redis.pipeline import CommandPipeline
from relay.store.redis.scripts import script

START_OVER_S = 5.0
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


class Search:
    """A puller's look for messages of some types. It pays for what it reads of others, call by call.

    While it waits for mail it goes on where it was, so that no wake makes it read a whole mailbox again. Every
    `START_OVER_S` it begins at the front: what others gave back is there."""

    def __init__(
        self, types: list[str], pay: Callable[[int], Awaitable[None]], give_back: Callable[[int], None]
    ) -> None:
        self.types = [escape(kind) for kind in types]
        self._pay = pay  # raises RateLimited
        self._give_back = give_back
        self._place = ""  # behind which the last call looked
        self._began = 0.0

    def begin(self, may_go_on: bool) -> str:
        """Behind which place to look."""
        now = time.monotonic()
        if not may_go_on or now - self._began >= START_OVER_S:
            self._place, self._began = "", now
        return self._place

    async def carry_out(self, look: Callable[[], Awaitable[TakeResult]], place: str) -> TakeResult:
        """One call, paid in advance. Raises RateLimited, Busy or StoreUnavailable."""
        self._place = place
        await self._pay(SEARCH)
        spent = 0
        try:
            result = await look()
            spent = SEARCH * result.passed // 1_000
        finally:
            self._give_back(SEARCH - spent)
        return result


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
        search: Search | None,
        ack_timeout_ms: int,
        consumer: str | None,
        asked_ms: int,
        waited: bool = False,
    ) -> list[tuple[Taken, LockToken]]:
        """Leases up to `most` messages of about `most_bytes`, but at least one.

        Raises Busy or StoreUnavailable, and RateLimited if the search is not paid for."""
        # Two leases of one consumer are told apart: what the first gave back is not the second's to settle.
        name = f"{PULLER}{escape(consumer or 'puller')}.{secrets.token_hex(4)}"
        types = search.types if search else None
        request = TakeRequest(name, most, most_bytes, ack_timeout_ms, is_puller=True, types=types)
        if search is None:
            rows = await self._look(address, request)
        else:
            rows = await self._search(address, request, search)
        tokens = []
        for row in rows:
            # What is there without waiting was stored before, whatever the clocks of two machines say.
            since_ms = asked_ms if waited else max(asked_ms, came_at_ms(row.entry) + 1)
            tokens.append((row, LockToken(row.attempt, since_ms, row.entry, name)))
        return tokens

    async def _look(self, address: str, request: TakeRequest) -> list[Taken]:
        """What was cut to nothing had nothing that can be read, and there may be more behind it."""
        while True:
            taken = await self._take(address, request)
            if taken.rows or not taken.is_cut:
                return taken.rows

    async def _search(self, address: str, request: TakeRequest, search: Search) -> list[Taken]:
        """Goes on, call by call, until it has found something or is through."""
        place = search.begin(may_go_on=not self._taking.uses_lanes(address))  # of higher ones all is in front
        while True:
            look = partial(self._take, address, replace(request, after=place))
            taken = await search.carry_out(look, place)
            place = taken.place or place
            if taken.rows or not (taken.place or taken.is_cut):
                return taken.rows

    async def _take(self, address: str, request: TakeRequest) -> TakeResult:
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
