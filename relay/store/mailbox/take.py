"""Taking: the next messages of a mailbox for a holder, in one call per shard."""

from collections.abc import Callable
from enum import Enum
from typing import Any

from msgspec import Struct

from relay.store import readable
from relay.store.mailbox.lanes import NO_LANES, Lanes
from relay.store.record.taken import Taken
from relay.store.redis.batcher import ShardBatcher
from relay.store.redis.encoder import ScriptEncoder
from relay.store.redis.pipeline import CommandPipeline, Outcome
from relay.store.redis.scripts import script
from relay.store.replies.receipts import Receipts

TYPED_WEIGHT = 200  # a look for types may read much that it does not want: two of them are a whole call


class TakeRequest(Struct, frozen=True):
    """What a holder asks its mailbox for."""

    holder: str  # the consumer in the group
    room: int  # how many messages it may be given
    room_bytes: int  # and about how many bytes, but one message at least
    ack_timeout_ms: int = 0
    backlog_end: str = ""  # until the backlog is through: its last entry, behind which nothing is given
    known: list[str] | None = None  # what it holds, if the store should compare
    is_puller: bool = False  # whether it gives way to an exclusive session
    types: list[str] | None = None  # the only types it wants
    credits_max: int = 0  # how many messages it and what is pushed afterwards may be; see accept_plain.lua
    after: str = ""  # where a look for types goes on


class TakeResult(Struct, frozen=True):
    """What a holder was given."""

    gone: list[str]  # what it said that it knows, and holds no more
    rows: list[Taken]
    is_cut: bool  # whether it got less than its room because of the bytes
    credits: int = 0  # how many messages will be pushed from now on without being asked for
    pushed: int = 0  # what the count of pushed messages starts from
    place: str = ""  # where a look for types must go on: it has read enough of others for one call
    passed: int = 0  # how much it has read of others, in thousandths of what one call reads


class NotTaken(Enum):
    """Why a holder was given nothing."""

    BUSY = "an exclusive session serves the mailbox"
    GONE = "the session is not registered any more"
    UNAVAILABLE = "the store did not answer"


TakeAnswer = TakeResult | NotTaken
Sift = Callable[[str, str, TakeResult], TakeResult]  # of this mailbox, for this holder


class PendingTake:
    """A take that waits for its call."""

    __slots__ = ("address", "answer", "make", "request", "shard")

    def __init__(
        self, address: str, shard: int, make: Callable[[], TakeRequest], answer: Callable[[TakeAnswer], None]
    ) -> None:
        self.address = address
        self.shard = shard
        self.make = make
        self.answer = answer
        self.request: TakeRequest | None = None  # made when the call is

    def weigh(self) -> int:
        self.request = self.make()
        return self.request.room if self.request.types is None else max(self.request.room, TYPED_WEIGHT)

    def row(self, lanes: str) -> list[Any]:
        """As take.lua wants it."""
        request = self.request
        assert request is not None
        return [
            *(self.address, lanes, request.holder, request.room, request.room_bytes),
            *(request.backlog_end, request.ack_timeout_ms),
            False if request.known is None else request.known,
            request.is_puller,
            False if request.types is None else request.types,
            request.credits_max,
            request.after,
        ]


class Taking:
    """Nothing here blocks: callers hand in work and are called back."""

    def __init__(
        self, pipeline: CommandPipeline, encoder: ScriptEncoder, receipts: Receipts, lanes: Lanes, sift: Sift
    ) -> None:
        self._pipeline = pipeline
        self._sift = sift  # takes out what cannot be read
        self._encoder = encoder
        self._keys = encoder.keys
        self._receipts = receipts
        self._lanes = lanes
        self._takes = ShardBatcher[PendingTake](
            pipeline, self._encode, self._taken, may_repeat=False, weigh=PendingTake.weigh
        )

    def take(self, address: str, make: Callable[[], TakeRequest], answer: Callable[[TakeAnswer], None]) -> None:
        """Asks for what is next. `make` is called when the call goes out: until then the holder's room may grow."""
        shard = self._keys.shard(address)
        self._takes.put(shard, PendingTake(address, shard, make, answer))

    def uses_lanes(self, address: str) -> bool:
        """Whether its mailbox is known to have priorities."""
        return self._lanes.of(address) != NO_LANES

    def _encode(self, shard: int, takes: list[PendingTake]) -> bytes:
        mailboxes = [take.row(self._lanes.of(take.address)) for take in takes]
        return self._encoder.for_mailboxes(
            script("take"), shard, [], mailboxes, number=(self._pipeline.exchange, "take")
        )

    def _taken(self, takes: list[PendingTake], outcome: Outcome) -> None:
        if isinstance(outcome, Exception):
            for take in takes:
                take.answer(NotTaken.UNAVAILABLE)
            return
        outbox_entry, receipts, taken = outcome
        self._receipts.forward(takes[0].shard, outbox_entry, receipts)
        for take, rows in zip(takes, taken, strict=True):
            if rows == b"lanes":
                self._lanes.widen(take.address)
                self._takes.put(take.shard, take)
            else:
                take.answer(self._sifted(take, _answer(rows)))

    def _sifted(self, take: PendingTake, answer: TakeAnswer) -> TakeAnswer:
        assert take.request is not None
        return self._sift(take.address, take.request.holder, answer) if isinstance(answer, TakeResult) else answer

    async def waiting(self, shard: int, addresses: list[str]) -> list[bool]:
        """Which of these mailboxes of a shard have something in them. Raises StoreUnavailable."""
        scores = await self._pipeline.command("ZMSCORE", self._keys.waiting(shard), *addresses)
        return [score is not None for score in scores]

    async def pushed(self, shard: int, addresses: list[str]) -> list[tuple[str, int]]:
        """To which session each of these mailboxes is pushed, if any, and how many messages by now."""
        fields = await self._pipeline.command("HMGET", self._keys.pushes(shard), *addresses)
        return [_pushed(field) for field in fields]


def _pushed(field: bytes | None) -> tuple[str, int]:
    session, _, total = [*readable.shown(field or b"").split("\t"), "", ""][:3]
    return session, readable.whole(total)


def _answer(rows: Any) -> TakeAnswer:
    """One result of take.lua: a word, or {gone, is_cut, credits, pushed, passed, handle, attempt, head, opts, …}."""
    if rows == b"busy":
        return NotTaken.BUSY
    if rows == b"gone":
        return NotTaken.GONE
    taken = [
        Taken(entry.decode(), attempt, head.decode(), opts.decode(), body)
        for entry, attempt, head, opts, body in zip(*[iter(rows[5:])] * 5, strict=True)
    ]
    place = rows[1].decode() if isinstance(rows[1], bytes) else ""
    return TakeResult([entry.decode() for entry in rows[0]], taken, rows[1] == 1, rows[2], rows[3], place, rows[4])
