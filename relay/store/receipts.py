"""Receipts: from the outbox of the recipient's shard to the sender's, and from there to the sender."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from relay.store.batches import Call, Gatherer, Line, Outcome
from relay.store.calls import Calls
from relay.store.keys import FORWARDED_BUCKET_MS, as_chunk, as_packet
from relay.store.scripts import script

RECEIPTS_MAX = 100_000  # about how many entries wait for one sender; a receipt is kept for the TTL at most
READ_AT_ONCE = 100


class Parcel:
    """What one outbox entry has for one shard."""

    __slots__ = ("arrived", "origin", "receipts")

    def __init__(self, origin: str, receipts: list[tuple[str, int, str]], arrived: Callable[[bool], None]) -> None:
        self.origin = origin
        self.receipts = receipts  # sender, how many, and they themselves: JSON, with commas between
        self.arrived = arrived


@dataclass(frozen=True, slots=True)
class Waiting:
    """Receipts that wait for a sender."""

    cursor: str
    count: int
    receipts: bytes  # JSON, with commas between


class Receipts:
    """Forwards receipts at once; what it cannot forward stays in the outbox for the worker."""

    def __init__(self, line: Line, calls: Calls) -> None:
        self._line = line
        self._calls = calls
        self._keys = calls.keys
        self._forwards = Gatherer[Parcel](line, self._encode_forward, self._forwarded, most=200)
        self._done = Gatherer[bytes](line, self._encode_done, lambda *_: None, is_patient=True)
        self.on_reply: Callable[[str, bytes, Callable[[bool], None]], None] | None = None

    def forward(self, shard: int, outbox_entry: bytes, fields: list[bytes]) -> None:
        """Brings what an outbox entry holds to where it belongs, then removes the entry."""
        if not outbox_entry:
            return
        origin = f"{shard}/{outbox_entry.decode()}"
        by_shard: dict[int, list[tuple[str, int, str]]] = {}
        replies = []
        for n in range(0, len(fields), 2):
            if fields[n] == b"reply":
                replies.append(fields[n + 1])
                continue
            sender, count, receipts = fields[n + 1].decode().split("\t", 2)
            by_shard.setdefault(self._keys.shard(sender), []).append((sender, int(count), receipts))
        missing = len(by_shard) + len(replies)

        def arrived(well: bool) -> None:
            nonlocal missing
            missing -= well
            if missing == 0:
                self._done.put(shard, outbox_entry)

        for target, some in by_shard.items():
            self._forwards.put(target, Parcel(origin, some, arrived))
        for reply in replies:
            assert self.on_reply is not None
            self.on_reply(origin, reply, arrived)

    def _encode_forward(self, shard: int, parcels: list[Parcel]) -> bytes:
        now_ms = self._calls.clock.now_ms()
        names = list(self._keys.forwarded(shard, now_ms))
        batches = []
        for parcel in parcels:
            flat: list[str | int] = []
            for one in parcel.receipts:
                names.append(self._keys.receipts(one[0]))
                flat += one
            batches.append([parcel.origin, flat])
        return self._calls.packet(
            script("forward"),
            shard,
            [2 * FORWARDED_BUCKET_MS, RECEIPTS_MAX, batches],
            more_keys=len(names),
            more_chunk=as_chunk(names),
        )

    def _forwarded(self, parcels: list[Parcel], outcome: Outcome, _: bool) -> None:
        for parcel in parcels:
            parcel.arrived(not isinstance(outcome, Exception))

    def _encode_done(self, shard: int, entries: list[bytes]) -> bytes:
        return as_packet("XDEL", self._keys.outbox(shard), *entries)

    # -- the sender's side

    def read(self, address: str, after: str, got: Callable[[list[Waiting] | None], None]) -> None:
        """What waits for a sender behind the cursor `after`: None if the store is away."""

        def done(_: Call, outcome: Outcome) -> None:
            if isinstance(outcome, Exception):
                got(None)
            else:
                got([Waiting(entry.decode(), int(fields[1]), fields[3]) for entry, fields in outcome])

        packet = as_packet("XRANGE", self._keys.receipts(address), f"({after}", "+", "COUNT", READ_AT_ONCE)
        self._line.submit(Call(packet, done))

    async def waiting(self, addresses: list[str]) -> list[bool]:
        """For which senders receipts wait. Raises StoreUnavailable."""
        lengths = await asyncio.gather(*(self._line.command("XLEN", self._keys.receipts(one)) for one in addresses))
        return [length > 0 for length in lengths]

    def confirm(self, address: str, cursor: str) -> None:
        """Forgets everything up to the cursor."""
        milliseconds, _, number = cursor.partition("-")
        packet = as_packet("XTRIM", self._keys.receipts(address), "MINID", f"{milliseconds}-{int(number) + 1}")
        self._line.submit_later(Call(packet, lambda *_: None))
