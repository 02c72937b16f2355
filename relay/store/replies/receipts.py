"""Receipts: from the outbox of the recipient's shard to the sender's shard, and to the sender."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from relay.store import readable
from relay.store.keys import FORWARDED_BUCKET_MS
from relay.store.redis.batcher import ShardBatcher
from relay.store.redis.encoder import ScriptEncoder
from relay.store.redis.pipeline import Command, CommandPipeline, Outcome
from relay.store.redis.resp import encode_command
from relay.store.redis.scripts import script
from relay.store.wakes import OutboxPlace, PushedReceipts

RECEIPTS_MAX = 10_000  # entries that wait for one sender, each one receipt or about 4 KiB of them; for the TTL at most
READ_AT_ONCE = 50
LOOK_AT_ONCE = 500  # senders whose receipts are looked for in one call


class ShardReceipts:
    """What one outbox entry has for one shard."""

    __slots__ = ("arrived", "origin", "receipts")

    def __init__(self, origin: str, receipts: list[tuple[str, int, str]], arrived: Callable[[bool], None]) -> None:
        self.origin = origin
        self.receipts = receipts  # sender, how many, and they themselves, as they are stored
        self.arrived = arrived


@dataclass(frozen=True, slots=True)
class ReceiptBatch:
    """Receipts that wait for a sender."""

    cursor: str
    count: int
    receipts: str  # as they are stored: receipt_lines.py
    dropped: int = 0  # instead of any: how many older ones were too many
    place: OutboxPlace | None = None  # in the outbox they come from


class Receipts:
    """Forwards receipts at once. What it cannot forward stays in the outbox for the worker."""

    def __init__(self, pipeline: CommandPipeline, encoder: ScriptEncoder) -> None:
        self._pipeline = pipeline
        self._encoder = encoder
        self._keys = encoder.keys
        # The outbox forgets what was forwarded, so a failover must not undo the copy alone.
        self._forwards = ShardBatcher[ShardReceipts](
            pipeline, self._encode_forward, self._forwarded, most=200, needs_replicas=True
        )
        self._done = ShardBatcher[OutboxPlace](pipeline, self._encode_done, self._deleted, is_patient=True)
        self._leaving: set[OutboxPlace] = set()  # being forwarded, or done with and being deleted
        self._left: deque[OutboxPlace] = deque(maxlen=RECEIPTS_MAX)  # done with, and could not be deleted
        self._confirmed: deque[OutboxPlace] = deque(maxlen=RECEIPTS_MAX)  # by their senders, lately
        self.on_reply: Callable[[str, bytes, Callable[[bool], None]], None] | None = None

    def forward(self, shard: int, outbox_entry: bytes, fields: list[bytes]) -> None:
        """Brings what an outbox entry holds to where it belongs, then removes the entry."""
        if not outbox_entry:
            return
        origin = f"{shard}/{outbox_entry.decode()}"
        by_shard: dict[int, list[tuple[str, int, str]]] = {}
        replies = []
        for n in range(0, len(fields), 2):
            if fields[n] == b"via":
                continue
            if fields[n] == b"reply":
                replies.append(fields[n + 1])
                continue
            for receipts in readable.readable(self._keys.outbox(shard), fields[n + 1 : n + 2], _read_receipts):
                by_shard.setdefault(self._keys.shard(receipts[0]), []).append(receipts)
        missing = len(by_shard) + len(replies)
        self._leaving.add((shard, outbox_entry.decode()))

        def arrived(well: bool) -> None:
            nonlocal missing
            missing -= well
            if missing == 0:
                self.done(shard, outbox_entry.decode())
            elif not well:
                self._leaving.discard((shard, outbox_entry.decode()))

        for target, some in by_shard.items():
            self._forwards.put(target, ShardReceipts(origin, some, arrived))
        for reply in replies:
            assert self.on_reply is not None
            self.on_reply(origin, reply, arrived)

    def hand_over(self, pushed: PushedReceipts) -> None:
        """Brings receipts to their sender's stream, whose session is not there or cannot take them."""
        receipts = f"{pushed.sender}\t{pushed.count}\t{pushed.receipts}"
        self.forward(pushed.shard, pushed.outbox_entry.encode(), [b"receipts", receipts.encode()])

    def confirmed(self, pushed: PushedReceipts) -> None:
        """The sender has confirmed them."""
        place = pushed.place
        self._confirmed.append(place)
        self.done(*place)

    def was_confirmed(self, place: OutboxPlace) -> bool:
        """Whether a sender has confirmed them lately: a copy may come late."""
        return place in self._confirmed

    def done(self, shard: int, outbox_entry: str) -> None:
        """The sender has confirmed what an outbox entry holds, or it was forwarded."""
        self._leaving.add((shard, outbox_entry))
        self._done.put(shard, (shard, outbox_entry))

    def went_back(self) -> None:
        """The store has gone back in time: what was forwarded may be undone. What is in an outbox is looked at anew."""
        self._leaving.clear()
        self._left.clear()

    def busy_s(self) -> float:
        """How long an exchange with the store takes now; 0 while it has nothing to do."""
        return self._pipeline.busy_s()

    async def left_in_outbox(
        self, shard: int, after: str, older_than_ms: int, limit: int
    ) -> list[tuple[bytes, list[bytes]]]:
        """Outbox entries from that place on that are older than this time."""
        reply = await self._pipeline.command(
            "XRANGE", self._keys.outbox(shard), after, f"({older_than_ms}-0", "COUNT", limit
        )
        return [(entry, fields) for entry, fields in reply]

    async def left_behind(self, shard: int, entry: bytes, fields: list[bytes]) -> None:
        """Handles an old outbox entry: reminds the instance of the sending session, which may have missed the push or
        may wait for the sender's confirmation. If there is no such instance, the entry is forwarded."""
        session = readable.shown(fields[1]) if fields[0] == b"via" and len(fields) > 3 else ""
        if not session or not await self._is_told(shard, entry, session, fields[3]):
            self.forward(shard, entry, fields)

    async def _is_told(self, shard: int, entry: bytes, session: str, receipts: bytes) -> bool:
        instance = session.partition(".")[0]
        sender = readable.shown(receipts.partition(b"\t")[0])
        until_ms = await self._pipeline.command("HGET", self._keys.instances(self._keys.shard(sender)), instance)
        if readable.whole(until_ms) < self._encoder.clock.now_ms():
            return False
        channel, line = self._keys.wake_prefix(shard) + instance, f"left\t{session}\t{shard}\t{entry.decode()}"
        return bool(await self._pipeline.command(self._encoder.publish, channel, line))

    async def in_outbox(self, session: str, shard: int, entry: str) -> PushedReceipts | None:
        """The receipts of an outbox entry for a session; None if they are done. Raises StoreUnavailable."""
        if (shard, entry) in self._leaving:
            return None
        rows = await self._pipeline.command("XRANGE", self._keys.outbox(shard), entry, entry)
        if not rows:
            return None
        read = readable.readable(self._keys.outbox(shard), rows, lambda row: _read_receipts(row[1][3]))
        if not read:
            return None
        ((sender, count, receipts),) = read
        is_done = (shard, entry) in self._left or self.was_confirmed((shard, entry))
        if is_done or await self._was_forwarded(f"{shard}/{entry}", sender):
            self.done(shard, entry)
            return None
        return PushedReceipts(session, shard, entry, sender, count, receipts)

    async def _was_forwarded(self, origin: str, sender: str) -> bool:
        """By another instance, perhaps, which could not delete it afterwards."""
        names = self._keys.forwarded(self._keys.shard(sender), self._encoder.clock.now_ms())
        return any([await self._pipeline.command("SISMEMBER", name, origin) for name in names])

    def _encode_forward(self, shard: int, parts: list[ShardReceipts]) -> bytes:
        now_ms = self._encoder.clock.now_ms()
        names = list(self._keys.forwarded(shard, now_ms))
        batches = []
        for part in parts:
            flat: list[str | int] = []
            for receipts in part.receipts:
                names.append(self._keys.receipts(receipts[0]))
                flat += receipts
            batches.append([part.origin, flat])
        return self._encoder.packet(
            script("forward"),
            shard,
            [2 * FORWARDED_BUCKET_MS, RECEIPTS_MAX, batches],
            keys=names,
        )

    def _forwarded(self, parts: list[ShardReceipts], outcome: Outcome) -> None:
        for part in parts:
            part.arrived(not isinstance(outcome, Exception))

    def _encode_done(self, shard: int, places: list[OutboxPlace]) -> bytes:
        # Those that are not known any more came to be done in a time that the store has forgotten.
        entries = [place[1] for place in places if place in self._leaving] or ["0-0"]
        return encode_command("XDEL", self._keys.outbox(shard), *entries)

    def _deleted(self, places: list[OutboxPlace], outcome: Outcome) -> None:
        """A worker finds what is still there, and must not have it sent once more to a session that had it."""
        self._leaving.difference_update(places)
        if isinstance(outcome, Exception):
            self._left.extend(places)

    # -- the sender's side

    def read(self, address: str, after: str, got: Callable[[list[ReceiptBatch] | None], None]) -> None:
        """Reads the receipts of a sender after the cursor `after`; None if the store is away."""

        def done(outcome: Outcome) -> None:
            if isinstance(outcome, Exception):
                got(None)
            else:
                got(readable.readable(self._keys.receipts(address), outcome, _waiting))

        packet = encode_command("XRANGE", self._keys.receipts(address), f"({after}", "+", "COUNT", READ_AT_ONCE)
        self._pipeline.submit(Command(packet, done))

    async def waiting(self, addresses: list[str]) -> list[bool]:
        """For which senders of one shard receipts wait. Raises StoreUnavailable."""
        pages = [addresses[start : start + LOOK_AT_ONCE] for start in range(0, len(addresses), LOOK_AT_ONCE)]
        return [is_waiting for page in await asyncio.gather(*map(self._unread, pages)) for is_waiting in page]

    async def _unread(self, addresses: list[str]) -> list[bool]:
        """For which of a few senders of one shard receipts wait. Raises StoreUnavailable."""
        keys = [self._keys.receipts(address) for address in addresses]
        unread = set(await self._pipeline.command("EVALSHA", script("unread").sha, len(keys), *keys))
        return [n in unread for n in range(1, len(addresses) + 1)]

    def forget(self, address: str, entries: list[str], forgot: Callable[[bool], None]) -> None:
        """Deletes what a sender has confirmed, and nothing else: a failover may bring back older entries, unread."""

        def done(outcome: Outcome) -> None:
            forgot(not isinstance(outcome, Exception))

        self._pipeline.submit_later(Command(encode_command("XDEL", self._keys.receipts(address), *entries), done))


def _read_receipts(value: bytes) -> tuple[str, int, str]:
    """Their sender, how many they are, and they themselves. Raises ValueError."""
    sender, count, receipts = value.decode().split("\t", 2)
    return sender, int(count), receipts


def _waiting(row: tuple[bytes, list[bytes]]) -> ReceiptBatch:
    entry, fields = row
    named = dict(zip(fields[::2], fields[1::2], strict=True))
    shard, _, outbox_entry = named.get(b"origin", b"").decode().partition("/")
    place = (int(shard), outbox_entry) if shard else None
    count, receipts, dropped = int(named[b"count"]), named[b"receipts"].decode(), int(named.get(b"dropped", 0))
    return ReceiptBatch(entry.decode(), count, receipts, dropped, place)
