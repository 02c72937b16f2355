"""Mailboxes: accept, take and settle, gathered into one call per shard."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import orjson

from relay.protocol import Message, escape, parse_entry
from relay.settings import Settings
from relay.store.batches import Gatherer, Line, Outcome
from relay.store.calls import Calls
from relay.store.keys import ALL_LANES, pair_key
from relay.store.receipts import Receipts
from relay.store.scripts import script

MAX_WIDE = 100_000  # mailboxes remembered to use priorities; forgetting one costs it a second call


class Draft:
    """A message on its way into a mailbox. `answer` is called once, with the outcome as accept.lua words it."""

    __slots__ = ("answer", "id", "priority", "row", "sender", "shard", "to")

    def __init__(
        self, sender: str, message: Message, shard: int, row: list[Any], answer: Callable[["Draft", Outcome], None]
    ) -> None:
        self.sender = sender
        self.id = message.id
        self.to = message.to
        self.priority = message.priority
        self.shard = shard
        self.row = row
        self.answer = answer


class Taker(Protocol):
    """Whoever takes from a mailbox: a session."""

    address: str
    shard: int
    name: str  # the consumer in the group
    began: str  # the last id that was there when it began
    drained: bool
    ack_timeout_ms: int
    is_puller: bool  # whether it gives way to an exclusive session
    types: list[str] | None  # the only types it wants

    def room(self) -> int: ...
    def known(self) -> list[str] | None: ...
    def taken(self, gone: list[str], rows: list["Taken"]) -> None: ...
    def take_failed(self) -> None: ...
    def unregistered(self) -> None: ...
    def busy(self) -> None: ...


class Taken:
    """One delivery: the static part of the frame is in `body`."""

    __slots__ = ("attempt", "body", "entry", "seq")

    def __init__(self, entry: str, attempt: int, seq: int, body: bytes) -> None:
        self.entry = entry
        self.attempt = attempt
        self.seq = seq
        self.body = body


class Settlement:
    """Entries settled in one way. `answer` gets the refused handles with their codes, or None if the store is away."""

    __slots__ = ("address", "answer", "attempts", "began", "entries", "extra", "holder", "timed")

    def __init__(
        self,
        address: str,
        holder: str,
        entries: Iterable[str],
        answer: Callable[[dict[str, str] | None], None],
        *,
        began: str = "0-0",
        timed: bool = True,
        extra: tuple[Any, ...] = (),
        attempts: dict[str, int] | None = None,
    ) -> None:
        self.address = address
        self.holder = holder
        self.entries = list(dict.fromkeys(entries))
        self.answer = answer
        self.began = began
        self.timed = timed
        self.extra = extra
        self.attempts = attempts or {}  # the attempt that the holder means, where it says one


class Mailboxes:
    """The message path. Nothing here waits: callers hand in work and are called back."""

    def __init__(self, line: Line, calls: Calls, receipts: Receipts) -> None:
        self._line = line
        self._calls = calls
        self._keys = calls.keys
        self._settings: Settings = calls.settings
        self._receipts = receipts
        self._wide: set[str] = set()
        self.wakes_sent = 0
        self.wakes_unheard = 0
        self._accepts = Gatherer[Draft](line, self._encode_accept, self._accepted)
        self._takes = Gatherer[Taker](
            line, self._encode_take, self._taken, may_repeat=False, weigh=lambda one: one.room()
        )
        self._acks = self._settling_gatherer(line, self._encode_ack, "not_found")
        self._nacks = self._settling_gatherer(line, self._encode_nack, "not_found", "lock_lost")
        self._releases = self._settling_gatherer(line, self._encode_release, "not_found", "lock_lost")
        self._touches = self._settling_gatherer(line, self._encode_touch)

    # -- accept

    def lives_ms(self, message: Message) -> int:
        """How long a message may live: its own TTL, if that is shorter than the relay's."""
        ttl_ms = self._settings.message_ttl_s * 1_000
        return ttl_ms if message.ttl_s is None else int(min(ttl_ms, message.ttl_s * 1_000))

    def draft(
        self,
        sender: str,
        message: Message,
        answer: Callable[[Draft, Outcome], None],
        *,
        reply_to_task_only: bool = False,
        is_part: bool = False,
    ) -> Draft:
        """Turns a message into what accept.lua stores. The payload is serialised here, once."""
        now_ms = self._calls.clock.now_ms()
        ttl_ms = self._settings.message_ttl_s * 1_000
        own_ttl_ms = self.lives_ms(message)
        not_before = now_ms + int(message.delay_s * 1_000) if message.delay_s else 0
        ack_ms = int(message.ack_timeout_s * 1_000) if message.ack_timeout_s else 0
        request = int(message.request) * (2 if reply_to_task_only else 1)
        receipt = 2 if message.receipt == "all" else int(message.receipt)
        timed = int(own_ttl_ms < ttl_ms or not_before > 0 or ack_ms > 0)
        expires_at = now_ms + own_ttl_ms
        payload = bytes(message.payload)
        pair = pair_key(sender, message.to)
        thread = escape(message.thread) if message.thread else ""
        kind = escape(message.type) if message.type else ""
        row = [
            0,  # the lane's index, known when the call is made
            f"{pair}\t{message.id}",
            f"{pair}\t{thread}",
            f"{kind}\t{thread}\t{message.priority}\t{len(payload)}",
            f"{now_ms}\t{expires_at}\t{not_before}\t{message.max_attempts}\t{ack_ms}\t{receipt}\t{request}\t{timed}",
            _body(sender, message, payload, now_ms, expires_at, is_part),
            len(payload),
        ]
        return Draft(sender, message, self._keys.shard(message.to), row, answer)

    def accept(self, draft: Draft) -> None:
        self._accepts.put(draft.shard, draft)

    def _encode_accept(self, shard: int, drafts: list[Draft]) -> bytes:
        settings = self._settings
        mailboxes: dict[str, list[Any]] = {}
        for draft in drafts:
            mailbox = mailboxes.get(draft.to)
            if mailbox is None:
                closed = int(not settings.is_open(draft.to.partition("/")[0]))
                lanes = self._lanes(draft.to)
                mailbox = [draft.to, lanes, closed, settings.mailbox_max_messages, settings.mailbox_max_bytes, []]
                mailboxes[draft.to] = mailbox
            if draft.priority:
                mailbox[1] = ALL_LANES
        in_order = list(mailboxes.values())
        for draft in drafts:
            mailbox = mailboxes[draft.to]
            draft.row[0] = mailbox[1].index(str(draft.priority)) + 1
            mailbox[5] += draft.row
        seqs_ms = 2 * self._keys.ttl_ms
        return self._calls.for_mailboxes(
            script("accept"), shard, [seqs_ms, self._keys.dedup_window_ms, self._keys.ttl_ms], in_order
        )

    def _accepted(self, drafts: list[Draft], outcome: Outcome, _: bool) -> None:
        if isinstance(outcome, Exception):
            for draft in drafts:
                draft.answer(draft, [b"unavailable"])
            return
        by_address: dict[str, list[Draft]] = {}
        for draft in drafts:
            by_address.setdefault(draft.to, []).append(draft)
        sent, unheard, results = outcome
        self.wakes_sent += sent
        self.wakes_unheard += unheard
        in_order = [draft for mailbox in by_address.values() for draft in mailbox]
        again = []
        for draft, result in zip(in_order, results, strict=True):
            if result[0] == b"lanes":
                self._widen(draft.to)
                again.append(draft)
            else:
                draft.answer(draft, result)
        if again:
            self._accepts.put_back(again[0].shard, again)

    # -- take

    def take(self, taker: Taker) -> None:
        """Asks for what is next for this taker; it is called back with taken() or take_failed()."""
        self._takes.put(taker.shard, taker)

    def _encode_take(self, shard: int, takers: list[Taker]) -> bytes:
        mailboxes = [
            [
                taker.address,
                self._lanes(taker.address),
                taker.name,
                taker.room(),
                "" if taker.drained else taker.began,
                taker.ack_timeout_ms,
                known if (known := taker.known()) is not None else False,
                taker.is_puller,
                taker.types if taker.types is not None else False,
            ]
            for taker in takers
        ]
        return self._calls.for_mailboxes(script("take"), shard, [], mailboxes)

    def _taken(self, takers: list[Taker], outcome: Outcome, _: bool) -> None:
        if isinstance(outcome, Exception):
            for taker in takers:
                taker.take_failed()
            return
        outbox_entry, receipts, taken = outcome
        self._receipts.forward(takers[0].shard, outbox_entry, receipts)
        for taker, rows in zip(takers, taken, strict=True):
            if rows == b"lanes":
                self._widen(taker.address)
                self.take(taker)
                continue
            if rows == b"busy":
                taker.busy()
                continue
            if rows == b"gone":
                taker.unregistered()
                continue
            gone = [entry.decode() for entry in rows[0]]
            taker.taken(
                gone,
                [Taken(rows[n].decode(), rows[n + 1], rows[n + 2], rows[n + 3]) for n in range(1, len(rows), 4)],
            )

    async def waiting(self, shard: int, addresses: list[str]) -> list[bool]:
        """Which of these mailboxes of a shard have something in them. Raises StoreUnavailable."""
        scores = await self._line.command("ZMSCORE", self._keys.waiting(shard), *addresses)
        return [score is not None for score in scores]

    # -- settle

    def ack(self, settlement: Settlement) -> None:
        self._put(self._acks, settlement)

    def nack(self, settlement: Settlement) -> None:
        """extra: as failure() makes it."""
        self._put(self._nacks, settlement)

    def release(self, settlement: Settlement) -> None:
        self._put(self._releases, settlement)

    def touch(self, settlement: Settlement) -> None:
        """extra: extend_ms."""
        self._put(self._touches, settlement)

    def _settling_gatherer(
        self, line: Line, encode: Callable[[int, list[Settlement]], bytes], *done_before: str
    ) -> Gatherer[Settlement]:
        """`done_before` are the refusals that a call itself brings about when it is made again."""
        forgiven = frozenset(done_before)

        def settled(settlements: list[Settlement], outcome: Outcome, retried: bool) -> None:
            self._settled(settlements, outcome, forgiven if retried else frozenset())

        return Gatherer[Settlement](line, encode, settled, weigh=_entry_count)

    def _put(self, gatherer: Gatherer[Settlement], settlement: Settlement) -> None:
        gatherer.put(self._keys.shard(settlement.address), settlement)

    def _encode_ack(self, shard: int, settlements: list[Settlement]) -> bytes:
        near_cap = self._settings.mailbox_max_messages // 2
        mailboxes = []
        for one in settlements:
            lanes, entries = self._entries(one)
            mailboxes.append([one.address, lanes, one.holder, one.began, one.timed, near_cap, entries])
        return self._calls.for_mailboxes(script("ack"), shard, [], mailboxes)

    def _encode_nack(self, shard: int, settlements: list[Settlement]) -> bytes:
        mailboxes = [self._settling(one) for one in settlements]
        return self._calls.for_mailboxes(
            script("nack"), shard, [self._settings.dead_max_messages], mailboxes, with_dead=True
        )

    def _encode_release(self, shard: int, settlements: list[Settlement]) -> bytes:
        return self._calls.for_mailboxes(script("release"), shard, [], [self._settling(one) for one in settlements])

    def _encode_touch(self, shard: int, settlements: list[Settlement]) -> bytes:
        return self._calls.for_mailboxes(script("touch"), shard, [], [self._settling(one) for one in settlements])

    def _settling(self, one: Settlement) -> list[Any]:
        lanes, entries = self._entries(one, ALL_LANES)
        return [one.address, lanes, one.holder, *one.extra, entries]

    @staticmethod
    def _entries(one: Settlement, lanes: str = "") -> tuple[str, list[Any]]:
        """The lanes that the entries are in, and {lane index, stream id, attempt} of each."""
        parsed = [(*known, one.attempts.get(entry, 0)) for entry in one.entries if (known := parse_entry(entry))]
        if not lanes:
            lanes = "".join(sorted({str(priority) for _, priority, _ in parsed}, reverse=True)) or "0"
        entries: list[Any] = []
        for stream_id, priority, attempt in parsed:
            entries += (lanes.index(str(priority)) + 1, stream_id, attempt)
        return lanes, entries

    def _settled(self, settlements: list[Settlement], outcome: Outcome, forgiven: frozenset[str]) -> None:
        if isinstance(outcome, Exception):
            for one in settlements:
                one.answer(None)
            return
        outbox_entry, receipts, refused = outcome
        self._receipts.forward(self._keys.shard(settlements[0].address), outbox_entry, receipts)
        by_mailbox: list[dict[str, str]] = [{} for _ in settlements]
        for n in range(0, len(refused), 3):
            why = refused[n + 2].decode()
            if why not in forgiven:
                by_mailbox[refused[n] - 1][refused[n + 1].decode()] = why
        for one, refusals in zip(settlements, by_mailbox, strict=True):
            refusals.update((entry, "not_found") for entry in one.entries if parse_entry(entry) is None)
            one.answer(refusals)

    # -- lanes

    def _lanes(self, address: str) -> str:
        return ALL_LANES if address in self._wide else "0"

    def _widen(self, address: str) -> None:
        if len(self._wide) >= MAX_WIDE:
            self._wide.clear()
        self._wide.add(address)


def failure(reason: str, retry: bool, delay_s: float | None) -> tuple[Any, ...]:
    """What nack.lua needs to know of a failed attempt: retry, delay_ms or -1, reason, reason as JSON or ''."""
    delay_ms = -1 if delay_s is None else int(delay_s * 1_000)
    return (retry, delay_ms, escape(reason), orjson.dumps(reason).decode() if reason else "")


def _entry_count(settlement: Settlement) -> int:
    return len(settlement.entries)


def _body(sender: str, message: Message, payload: bytes, now_ms: int, expires_at: int, is_part: bool) -> str:
    """The fields of a delivery that never change, as JSON without its braces."""
    fields: dict[str, Any] = {
        "id": message.id,
        "from": sender,
        "priority": message.priority,
        "payload": orjson.Fragment(payload),
        "sent_at_ms": now_ms,
        "expires_at_ms": expires_at,
        "request": message.request,
    }
    for name in ("type", "thread", "reply_to", "headers", "signature"):
        value = getattr(message, name)
        if value is not None:
            fields[name] = value
    if is_part:
        fields["more"] = True
    return orjson.dumps(fields)[1:-1].decode()  # cmsgpack in Redis knows no binary strings
