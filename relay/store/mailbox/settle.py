"""Settling: ack, nack, release, touch and reply, each executed once, in the order of the requests."""

import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import orjson

from relay.errors import NotReplicated
from relay.protocol.columns import escape
from relay.protocol.entry import parse_entry
from relay.settings import Settings
from relay.store.keys import ALL_LANES
from relay.store.mailbox.ack_plain import HeldAck
from relay.store.mailbox.ack_plain import encode as encode_plain
from relay.store.record.taken import Taken
from relay.store.redis.encoder import Number, ScriptEncoder
from relay.store.redis.ordered_batcher import OrderedBatcher
from relay.store.redis.pipeline import CommandPipeline, Outcome
from relay.store.redis.scripts import script
from relay.store.replies.receipts import Receipts
from relay.store.witness import Witness

MAX_PARTS = 1_000  # of one reply; the next one is refused with too_large
OUTBOX_MAX = 10_000  # entries that may wait in a shard's outbox before a part is refused

PLAIN = "ack_plain"  # how acks are called for whose deliveries are at hand
SPECIAL_S = 10.0  # for so long the acks of a mailbox that was not as believed are not tried in this way again

How = Literal["ack", "nack", "release", "touch"]
Extra = tuple[bool | int | str, ...]
Refusals = dict[str, str]  # handle -> "lock_lost", "not_found" or UNCONFIRMED
UNCONFIRMED = "unconfirmed"  # its holder does not hold it any more, unless a failover undoes that


class Settlement:
    """Entries, each once, settled in one way. `answer` gets the refused handles with their codes, or None if the store
    is away."""

    __slots__ = ("address", "answer", "attempts", "backlog_end", "entries", "extra", "holder", "how", "rows", "timed")

    is_alone = False

    def __init__(
        self,
        how: How,
        address: str,
        holder: str,
        entries: list[str],
        answer: Callable[[Refusals | None], None],
        *,
        backlog_end: str = "0-0",
        timed: bool = True,
        extra: Extra = (),  # of a nack as failure() makes it, of a touch extend_ms
        attempts: dict[str, int] | None = None,
        rows: list[Taken] | None = None,
    ) -> None:
        self.how: str = how
        self.rows = rows  # of an ack: the deliveries themselves, if its holder has kept them all
        self.address = address
        self.holder = holder
        self.entries = entries
        self.answer = answer
        self.backlog_end = backlog_end
        self.timed = timed
        self.extra = extra
        self.attempts = attempts or {}  # the attempt that the holder means, where it says one

    @property
    def weight(self) -> int:
        return len(self.entries)

    @property
    def may_be_put_back(self) -> bool:
        return self.how == PLAIN

    def fail(self) -> None:
        self.answer(None)

    def is_unconfirmed(self) -> None:
        """The master did it. What is touched is still held."""
        self.answer(None if self.how == "touch" else dict.fromkeys(self.entries, UNCONFIRMED))


class ReplyStep:
    """A reply to a request. `answer` gets the outcome as reply.lua words it, or "unavailable"."""

    __slots__ = ("address", "answer", "attempt", "backlog_end", "entry", "holder", "more", "payload")

    how = "reply"
    is_alone = True
    may_be_put_back = False
    weight = 1

    def __init__(
        self,
        address: str,
        holder: str,
        backlog_end: str,
        entry: str,
        payload: bytes,
        more: bool,
        answer: Callable[[str], None],
        attempt: int = 0,
    ) -> None:
        self.address = address
        self.holder = holder
        self.backlog_end = backlog_end
        self.entry = entry
        self.payload = payload
        self.more = more
        self.answer = answer
        self.attempt = attempt  # the one that the holder means, or 0

    def fail(self) -> None:
        self.answer("unavailable")

    def is_unconfirmed(self) -> None:
        self.fail()


Step = Settlement | ReplyStep


class Settling:
    """The settlements of holders. Nothing here blocks: callers hand in work and are called back."""

    def __init__(self, pipeline: CommandPipeline, encoder: ScriptEncoder, receipts: Receipts, witness: Witness) -> None:
        self._witness = witness
        self._encoder = encoder
        self._keys = encoder.keys
        self._settings: Settings = encoder.settings
        self._receipts = receipts
        self._queue = OrderedBatcher[Step](pipeline, self._encode, self._done)
        self._special: dict[str, float] = {}  # address -> until when its acks are not plain

    def settle(self, settlement: Settlement) -> None:
        if settlement.rows and settlement.how == "ack" and not self._is_special(settlement.address):
            settlement.how = PLAIN
        self._queue.put(self._keys.shard(settlement.address), settlement)

    def reply(self, reply: ReplyStep) -> None:
        if parse_entry(reply.entry) is None:
            reply.answer("not_found")
        else:
            self._queue.put(self._keys.shard(reply.address), reply)

    def _encode(self, shard: int, steps: list[Step], number: Number) -> bytes:
        """The steps of a call are all of one kind."""
        if isinstance(steps[0], ReplyStep):
            return self._encode_reply(shard, steps[0], number)
        how, settlements = steps[0].how, _settlements(steps)
        if how == PLAIN:
            return self._encode_plain(shard, settlements, number)
        rows = [self._ack_row(step) if how == "ack" else _row(step) for step in settlements]
        before = [self._settings.dead_max_messages] if how == "nack" else []
        return self._encoder.for_mailboxes(script(how), shard, before, rows, with_dead=how == "nack", number=number)

    def _encode_plain(self, shard: int, acks: list[Settlement], number: Number) -> bytes:
        held = [
            HeldAck(*holder, [row for ack in own for row in ack.rows or []], own[0].timed)
            for holder, own in _by_holder(acks).items()
        ]
        return encode_plain(self._encoder, shard, held, number, self._settings.mailbox_max_messages // 2)

    def _is_special(self, address: str) -> bool:
        until = self._special.get(address)
        if until is not None and until < time.monotonic():
            del self._special[address]
            return False
        return until is not None

    def _ack_row(self, ack: Settlement) -> list[Any]:
        near_cap = self._settings.mailbox_max_messages // 2
        lanes, entries = _entries(ack)
        return [ack.address, lanes, ack.holder, ack.backlog_end, ack.timed, near_cap, entries]

    def _encode_reply(self, shard: int, reply: ReplyStep, number: Number) -> bytes:
        parsed = parse_entry(reply.entry)
        assert parsed is not None
        stream_id, priority = parsed
        lane = ALL_LANES.index(str(priority)) + 1
        milliseconds, _, place = stream_id.partition("-")
        entry = f"{int(milliseconds)}-{int(place)}p{priority}"  # however the holder spells it
        max_bytes = max(self._settings.reply_max_bytes, self._settings.max_payload_bytes)
        return self._encoder.packet(
            script("reply"),
            shard,
            [
                *(reply.address, ALL_LANES, reply.holder, reply.backlog_end, lane, stream_id),
                *(reply.attempt, reply.more, reply.payload.decode(), MAX_PARTS, max_bytes, OUTBOX_MAX),
            ],
            keys=[self._keys.parts(reply.address, entry), *self._keys.boxes(reply.address)],
            number=number,
        )

    def _done(self, steps: list[Step], outcome: Outcome) -> None:
        if isinstance(outcome, NotReplicated) and not _must_be_put_back(steps, outcome.outcome):
            for step in steps:
                step.is_unconfirmed()
            return
        if isinstance(outcome, Exception):
            for step in steps:
                step.fail()
            return
        if steps[0].how == PLAIN:
            self._done_plainly(_settlements(steps), outcome)
            return
        outbox_entry, fields, came, logged = outcome
        shard = self._keys.shard(steps[0].address)
        self._witness.promised(shard, logged)
        self._receipts.forward(shard, outbox_entry, fields)
        if isinstance(steps[0], ReplyStep):
            steps[0].answer(came.decode())
        else:
            _tell(_settlements(steps), came)

    def _done_plainly(self, acks: list[Settlement], outcome: list[Any]) -> None:
        shard = self._keys.shard(acks[0].address)
        if not _must_be_put_back(acks, outcome):
            self._witness.promised(shard, outcome[1])
            for n in range(2, len(outcome), 2):
                self._receipts.forward(shard, outcome[n], [b"receipts", outcome[n + 1]])
            for ack in acks:
                ack.answer({})
            return
        until = time.monotonic() + SPECIAL_S
        holders = list(_by_holder(acks))
        self._special |= {holders[n - 1][0]: until for n in outcome[1:]}
        for ack in acks:
            ack.how = "ack"
        self._queue.put_back(shard, list(acks))


def _must_be_put_back(steps: Sequence[Step], outcome: list[Any]) -> bool:
    """Whether ack_plain.lua has changed nothing, because the state was not as believed."""
    return steps[0].how == PLAIN and outcome[0] != b"acked"


def _by_holder(acks: list[Settlement]) -> dict[tuple[str, str], list[Settlement]]:
    """The acks of each mailbox and holder together: the script looks at a mailbox once."""
    holders: dict[tuple[str, str], list[Settlement]] = {}
    for ack in acks:
        holders.setdefault((ack.address, ack.holder), []).append(ack)
    return holders


def _settlements(steps: list[Step]) -> list[Settlement]:
    return [step for step in steps if isinstance(step, Settlement)]


def _row(settlement: Settlement) -> list[Any]:
    lanes, entries = _entries(settlement, ALL_LANES)
    backlog_end = [settlement.backlog_end] if settlement.how == "nack" else []
    return [settlement.address, lanes, settlement.holder, *backlog_end, *settlement.extra, entries]


def _entries(settlement: Settlement, lanes: str = "") -> tuple[str, list[Any]]:
    """The lanes that the entries are in, and {lane index, stream id, attempt} of each."""
    attempts = settlement.attempts
    parsed = [(*known, attempts.get(entry, 0)) for entry in settlement.entries if (known := parse_entry(entry))]
    if not lanes:
        lanes = "".join(sorted({str(priority) for _, priority, _ in parsed}, reverse=True)) or "0"
    entries: list[Any] = []
    for stream_id, priority, attempt in parsed:
        entries += (lanes.index(str(priority)) + 1, stream_id, attempt)
    return lanes, entries


def _tell(settlements: list[Settlement], refused: list[Any]) -> None:
    """Each holder hears what of its own was refused: {mailbox index, handle, why, …}."""
    by_mailbox: list[Refusals] = [{} for _ in settlements]
    for n in range(0, len(refused), 3):
        by_mailbox[refused[n] - 1][refused[n + 1].decode()] = refused[n + 2].decode()
    for settlement, refusals in zip(settlements, by_mailbox, strict=True):
        refusals.update((entry, "not_found") for entry in settlement.entries if parse_entry(entry) is None)
        settlement.answer(refusals)


def failure(reason: str, retry: bool, delay_s: float | None) -> Extra:
    """The arguments of nack.lua for a failed attempt: retry, delay_ms or -1, reason, reason as JSON or ''."""
    delay_ms = -1 if delay_s is None else int(delay_s * 1_000)
    return (retry, delay_ms, escape(reason), orjson.dumps(reason).decode() if reason else "")
