"""A session: what the frames of one authenticated agent mean, from the first delivery to the last ack."""

import asyncio
import logging
import re
import time
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from relay.answering import Answers
from relay.auth import Identity
from relay.errors import Malformed, RelayError, StoreUnavailable, Unauthorized
from relay.logs import LIFE
from relay.metrics import Metrics
from relay.protocol import (
    Ack,
    AnyFrame,
    Auth,
    Nack,
    Ping,
    Publish,
    ReceiptsAck,
    Release,
    Reply,
    Send,
    Touch,
    frame,
    opaque,
    parse,
)
from relay.questions import Questions
from relay.sending import not_granted, not_held
from relay.sends import Sends
from relay.store.mailboxes import Settlement, Taken, failure
from relay.store.presence import Joined
from relay.store.receipts import Waiting
from relay.store.store import Store
from relay.topics import Topics

log = logging.getLogger(__name__)

TAKE_AT_ONCE = 100  # deliveries asked for in one call, so that one session's payloads stay few in memory
SHARED_ACK_TIMEOUT_S = 30.0
OTHERS_FIRST_S = 0.1  # how long other sessions have for what this one let lie
_CURSOR = re.compile(r"\d{1,18}-\d{1,18}")


class Outlet(Protocol):
    """The way to the client: never waits, joins what is written in one turn."""

    def write(self, frame: bytes) -> None: ...
    def is_congested(self) -> bool: ...


class Session:
    """One agent on one socket.

    Guarantees: deliveries go out in the order of the mailbox, at most `window` of them unconfirmed; the backlog comes
    before `drained` and everything else after it; every message sent is answered once; nothing leaves the mailbox
    but by the client's word. Nothing here waits for a client or for the store: the store calls back.
    """

    # 10,000 idle sessions are the normal case, so each is kept small.
    __slots__ = (
        "_answers",
        "_asked",
        "_backlog_delivered",
        "_backlog_pending",
        "_held",
        "_looked",
        "_mail",
        "_metrics",
        "_more_receipts",
        "_outlet",
        "_questions",
        "_reading_receipts",
        "_receipt_cursor",
        "_sends",
        "_store",
        "_taking",
        "_unsure",
        "_woken",
        "ack_timeout_ms",
        "address",
        "began",
        "closing",
        "drained",
        "identity",
        "joined",
        "mode",
        "name",
        "next_active_at_ms",
        "receives",
        "renew",
        "shard",
        "tenant",
        "window",
    )

    is_puller = False
    types: list[str] | None = None

    def __init__(
        self,
        name: str,
        identity: Identity,
        auth: Auth,
        store: Store,
        outlet: Outlet,
        topics: Topics,
        metrics: Metrics,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self.name = name
        self.identity = identity
        self.address = identity.address
        self.tenant = identity.tenant
        self.receives = "receive" in identity.scopes  # else it has no mailbox: it only sends
        self.mode: str = auth.mode or "exclusive" if self.receives else "sender"
        self.window = auth.window
        self.shard = store.keys.shard(self.address)
        self.ack_timeout_ms = int(_ack_timeout_s(auth) * 1_000)
        self.next_active_at_ms = auth.next_active_at_ms
        self.began = "0-0"  # the last entry that was there when the session began
        self.joined = False  # whether the mailbox is ours: a wake may come before that, for a predecessor
        self.drained = False  # whether the backlog is through
        self.closing = False  # no new deliveries: the session is about to end
        self._store = store
        self._outlet = outlet
        self._metrics = metrics
        self._held: dict[str, float] = {}  # entry -> when it was pushed
        self._backlog_pending = 0  # how many waited when the session began
        self._backlog_delivered = 0
        self._taking = False  # a take is under way
        self._asked = 0  # how many it asked for
        self._mail = False  # the mailbox may have more
        self._woken = False  # a wake came while a take was under way
        self._looked = False  # the take under way was nobody's wake
        self._unsure = False  # a take was not answered: the store may think we hold what we never saw
        self._receipt_cursor = "0-0"
        self._reading_receipts = False
        self._more_receipts = False
        self._answers = Answers(self.send, store.level)
        self._sends = Sends(self.address, store, metrics, self._answers)
        self._questions = Questions(self, store, topics, spawn, self._answers)
        self.renew: Callable[[Auth], None] = _cannot_renew

    # -- the session's life

    def begin(self, joined: Joined) -> None:
        """The mailbox is ours: say what waits there, and start to push."""
        self.joined = True
        self.began = joined.began
        self._backlog_pending = joined.pending
        self.send(frame("queue_status", pending=joined.pending, bytes=joined.bytes, oldest_ms=joined.oldest_ms))
        self.ring()
        self.read_receipts()

    def begin_without_mailbox(self) -> None:
        """A client that may only send: it sees an empty mailbox and disturbs nobody who serves the real one."""
        self.joined = True
        self.send(frame("queue_status", pending=0, bytes=0, oldest_ms=None))
        self.send(frame("drained", delivered=0))
        self.read_receipts()

    def rejoined(self, joined: Joined) -> None:
        """The store had lost this session and has it again: whatever it held is back in the mailbox."""
        self._held.clear()
        self._unsure = True
        self.began = joined.began
        self.ring()

    def end(self) -> None:
        self._questions.end()

    def is_idle(self) -> bool:
        """Nothing is unconfirmed and nothing unanswered."""
        return not self._held and not self._answers.owed

    # -- frames in

    def receive(self, data: bytes) -> None:
        """One frame of the client. What is wrong with it is answered; the session goes on."""
        self._answers.received(len(data))
        try:
            self._handle(parse(data))
        except RelayError as error:
            self._error(error)

    async def calm(self) -> None:
        """Returns when the client may be read on: when not too much of what it sent is still unanswered."""
        await self._answers.calm()

    def _handle(self, received: AnyFrame) -> None:
        match received:
            case Send(messages=messages):
                self._sends.send(self.identity, messages)
            case Ack(entries=entries, confirm=confirm):
                self._settle("ack", entries, confirm)
            case Nack():
                self._nack(received)
            case Release(entries=entries, confirm=confirm):
                self._settle("release", entries, confirm)
            case Touch(entries=entries, extend_s=extend_s, confirm=confirm):
                self._settle("touch", entries, confirm, (int(extend_s * 1_000),))
            case Reply():
                self._reply(received)
            case ReceiptsAck(cursor=cursor):
                self._confirm_receipts(cursor)
            case Ping():
                self.send(frame("pong", server_time_ms=self._store.clock.now_ms()))
            case Publish():
                self._questions.publish(received)
            case Auth():
                self.renew(received)
            case _:
                self._questions.ask(received)

    def _error(self, error: RelayError) -> None:
        self.send(frame("error", **error.as_fields()))

    # -- receiving

    def ring(self) -> None:
        """There may be mail."""
        if not self.joined or not self.receives:
            return
        self._mail = True
        if self._taking:
            self._woken = True
        self._pump()

    def _pump(self) -> None:
        """Asks for what is next, if there is room and nothing is asked for yet."""
        if self._mail and not self._taking and not self.closing and self.room() > 0:
            self._taking = True
            self._store.mailboxes.take(self)

    def room(self) -> int:
        if self._outlet.is_congested():
            self._asked = 0
        else:
            self._asked = max(0, min(self.window - len(self._held), TAKE_AT_ONCE))
        return self._asked

    def known(self) -> list[str] | None:
        return list(self._held) if self._unsure else None

    def look(self) -> None:
        """The store says that mail waits: a wake may have been lost. A full window is checked against the store."""
        if not self.receives:
            return
        if len(self._held) >= self.window:
            self._unsure = True
        self._looked = not self._taking and not self._mail
        self.ring()
        if self._unsure and not self._taking and not self.closing:
            self._taking = True
            self._store.mailboxes.take(self)

    def taken(self, gone: list[str], rows: list[Taken]) -> None:
        self._taking = False
        self._unsure = False
        for entry in gone:
            self._held.pop(entry, None)
        if self._asked and len(rows) < self._asked:
            self._mail = self._woken
        self._woken = False
        if self._looked and rows:
            self._metrics.wakes["lost"] += 1
        elif self.drained and not rows and not self._looked:
            self._metrics.wakes["late"] += 1
        self._looked = False
        if self.closing:
            self._give_back(rows)
            return
        if rows:
            self._deliver(rows)
        if not self.drained:
            self._backlog_delivered += len(rows)
            if len(rows) < self._asked or self._backlog_delivered >= self._backlog_pending:
                self.drained = True
                self._mail = True
                self.send(frame("drained", delivered=self._backlog_delivered))
        self._pump()

    def busy(self) -> None:
        raise AssertionError("only pullers give way")

    def unregistered(self) -> None:
        """The store does not know this session any more: the hub finds out why, and joins again or closes."""
        self.take_failed()

    def take_failed(self) -> None:
        self._taking = False
        self._unsure = True
        self._mail = True
        asyncio.get_running_loop().call_later(1.0, self._pump)

    def _deliver(self, rows: list[Taken]) -> None:
        now = time.monotonic()
        now_ms = self._store.clock.now_ms()
        metrics, held, began = self._metrics, self._held, self.began
        began_ms = int(began.partition("-")[0])
        parts = []
        for row in rows:
            held[row.entry] = now
            accepted_ms = int(row.entry.partition("-")[0])
            was_stored = accepted_ms < began_ms or (accepted_ms == began_ms and _came_before(row.entry, began))
            parts.append(
                b'{"entry":"%b","seq":%d,"attempt":%d,"was_stored":%b,%b}'
                % (row.entry.encode(), row.seq, row.attempt, b"true" if was_stored else b"false", row.body)
            )
            metrics.accepted_to_delivered.observe((now_ms - accepted_ms) / 1_000)
            if row.attempt > 1:
                metrics.redelivered += 1
        metrics.delivered += len(rows)
        if LIFE.isEnabledFor(logging.DEBUG):
            for row in rows:
                LIFE.debug("delivered", extra={"agent": self.address, "entry": row.entry, "attempt": row.attempt})
        self.send(b'{"op":"deliver","messages":[%b]}' % b",".join(parts))

    def _give_back(self, rows: list[Taken]) -> None:
        if rows:
            self._store.mailboxes.release(
                Settlement(self.address, self.name, [row.entry for row in rows], lambda _: None)
            )

    def lose(self, entry: str, others_first: bool = False) -> None:
        """Somebody else ended this hold: its place in the window is free. What lay too long is for others first."""
        self._held.pop(entry, None)
        if others_first:
            self._mail = self._woken = True
            asyncio.get_running_loop().call_later(OTHERS_FIRST_S, self._pump)
        else:
            self._pump()

    # -- settling

    def _nack(self, nack: Nack) -> None:
        self._settle("nack", nack.entries, nack.confirm, failure(nack.reason, nack.retry, nack.delay_s))

    def _settle(self, how: str, entries: list[str], confirm: bool, extra: tuple[Any, ...] = ()) -> None:
        def answer(refusals: dict[str, str] | None) -> None:
            self._answers.paid(len(settlement.entries))
            self._settled(how, settlement.entries, refusals, confirm)

        timed = self.ack_timeout_ms > 0
        settlement = Settlement(self.address, self.name, entries, answer, began=self.began, timed=timed, extra=extra)
        self._answers.owe(len(settlement.entries))
        settle = getattr(self._store.mailboxes, how)
        settle(settlement)

    def _settled(self, how: str, entries: list[str], refusals: dict[str, str] | None, confirm: bool) -> None:
        if refusals is None:
            away = StoreUnavailable("it may or may not be settled; the same again is safe")
            for entry in entries:
                self._answers.refuse_entry(away, entry)
            return
        now = time.monotonic()
        for entry in entries:
            pushed_at = self._held.get(entry)
            if pushed_at is None:
                continue
            if how != "touch" or entry in refusals:
                del self._held[entry]
            if how == "ack" and entry not in refusals:
                self._metrics.delivered_to_acked.observe(now - pushed_at)
        self._metrics.settled[how] += len(entries) - len(refusals)
        if LIFE.isEnabledFor(logging.DEBUG):
            for entry in entries:
                LIFE.debug(refusals.get(entry, how), extra={"agent": self.address, "entry": entry})
        for entry, code in refusals.items():
            self._answers.refuse_entry(not_held(code), entry)
        if confirm:
            self.send(frame("settled", entries=[entry for entry in entries if entry not in refusals]))
        self._pump()

    def _reply(self, reply: Reply) -> None:
        payload = opaque(reply.payload, self._store.settings.max_payload_bytes)

        def answer(word: str) -> None:
            self._answers.paid(1)
            if word == "replied" and reply.more:
                if reply.confirm:
                    self.send(frame("settled", entries=[reply.entry]))
            elif word == "not_a_request":
                self._error(Malformed("the entry is not a request", entry=reply.entry))
            else:
                outcome = None if word == "unavailable" else {} if word == "replied" else {reply.entry: word}
                self._settled("reply", [reply.entry], outcome, reply.confirm)

        def spent(granted: int | None, retry_after_ms: int) -> None:
            if granted:
                self._store.replies.reply(self.address, self.name, self.began, reply.entry, payload, reply.more, answer)
                return
            self._answers.paid(1)
            self._answers.refuse_entry(not_granted(granted, retry_after_ms), reply.entry)

        self._answers.owe(1)
        self._store.rates.spend(self.address, 1, spent)

    # -- receipts

    def read_receipts(self) -> None:
        """Fetches the receipts that came since the last look."""
        if not self.joined:
            return
        if self._reading_receipts:
            self._more_receipts = True
            return
        self._reading_receipts = True
        self._store.receipts.read(self.address, self._receipt_cursor, self._got_receipts)

    def _got_receipts(self, found: list[Waiting] | None) -> None:
        self._reading_receipts = False
        if found:
            self._receipt_cursor = found[-1].cursor
            self._metrics.receipts += sum(waiting.count for waiting in found)
            self.send(
                b'{"op":"receipts","cursor":"%b","receipts":[%b]}'
                % (self._receipt_cursor.encode(), b",".join(waiting.receipts for waiting in found))
            )
        if self._more_receipts or found:
            self._more_receipts = False
            self.read_receipts()

    def _confirm_receipts(self, cursor: str) -> None:
        if not _CURSOR.fullmatch(cursor):
            raise Malformed("Expected a cursor that came with receipts - at `$.cursor`")
        self._store.receipts.confirm(self.address, cursor)

    # -- frames out

    def send(self, text: bytes) -> None:
        self._outlet.write(text)


def _cannot_renew(_: Auth) -> None:
    raise Unauthorized("the session is authenticated already")


def _ack_timeout_s(auth: Auth) -> float:
    if auth.ack_timeout_s is not None:
        return auth.ack_timeout_s
    return SHARED_ACK_TIMEOUT_S if auth.mode == "shared" else 0.0


def _came_before(entry: str, other: str) -> bool:
    """Whether an entry of the same millisecond is not newer."""
    number = entry.partition("-")[2].partition("p")[0]
    return int(number) <= int(other.partition("-")[2])
