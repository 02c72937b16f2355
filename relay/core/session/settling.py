"""Settling: the settlements of one client, rate-limited and answered."""

from functools import partial
from typing import Any, assert_never

from relay.core.intake import maybe_settled, no_more_parts, not_granted, not_held
from relay.core.lifecycle import note_settled
from relay.core.session.agent_link import AgentLink
from relay.core.session.answer_buffer import AnswerBuffer
from relay.core.session.delivery import DeliveryPump
from relay.core.session.spending import Spending
from relay.errors import Malformed
from relay.protocol.frames import Ack, Nack, Release, Reply, Touch, frame
from relay.protocol.message import opaque
from relay.store.agents.rates import SETTLING
from relay.store.mailbox.settle import How, ReplyStep, Settlement, failure
from relay.store.record.taken import Taken
from relay.store.store import Store
from relay.telemetry.metrics import Metrics


class SessionSettling:
    """Acks, nacks, releases, touches and replies of one session, carried out in the order in which they came.

    A refused entry is always answered. A settled one is answered only if the client asked for it. What the master has
    settled makes room in the window, also while no replica has it: a client is served on through a failover.
    """

    __slots__ = (
        *("_holder", "_is_timed", "_link", "_metrics", "_pump", "_answers", "_spending", "_store"),
        "may_hold",
    )

    def __init__(
        self,
        link: AgentLink,
        holder: str,
        is_timed: bool,
        pump: DeliveryPump,
        store: Store,
        metrics: Metrics,
        answers: AnswerBuffer,
        spending: Spending,
    ) -> None:
        self.may_hold = True  # a session that has no mailbox can hold nothing
        self._link = link
        self._holder = holder
        self._is_timed = is_timed
        self._pump = pump
        self._store = store
        self._metrics = metrics
        self._answers = answers
        self._spending = spending

    def handle(self, received: Ack | Nack | Release | Touch | Reply) -> None:
        """Raises TooLarge."""
        match received:
            case Ack():
                self._settle("ack", received)
            case Nack():
                self._settle("nack", received, failure(received.reason, received.retry, received.delay_s))
            case Release():
                self._settle("release", received)
            case Touch():
                self._settle("touch", received, (int(received.extend_s * 1_000),))
            case Reply():
                self._reply(received)
            case _:
                assert_never(received)

    def give_back(self, entries: list[str]) -> None:
        """Releases messages that arrived too late for a closing client; the attempt is not counted."""
        if entries:
            settlement = Settlement("release", self._link.address, self._holder, entries, lambda _: None)
            self._store.settling.settle(settlement)

    def _settle(self, how: How, received: Ack | Nack | Release | Touch, extra: tuple[Any, ...] = ()) -> None:
        entries, confirm = list(dict.fromkeys(received.entries)), received.confirm
        if not self.may_hold:
            self._settled(how, entries, dict.fromkeys(entries, "lock_lost"), confirm)
            return
        settlement = Settlement(
            *(how, self._link.address, self._holder, entries, partial(self._answered, how, entries, confirm)),
            backlog_end=self._pump.backlog_end,
            timed=self._is_timed,
            extra=extra,
            rows=self._kept(entries) if how == "ack" else None,
        )
        self._answers.expect(len(entries))
        self._spending.spend(len(entries), partial(self._spent, settlement), SETTLING[how])

    def _spent(self, settlement: Settlement, granted: int | None, retry_after_ms: int) -> None:
        self._leave_unsettled(settlement, granted, retry_after_ms)
        if settlement.entries:
            self._store.settling.settle(settlement)

    def _answered(self, how: How, entries: list[str], confirm: bool, refusals: dict[str, str] | None) -> None:
        """It knows the entries and not their settlement, which knows it: no circle is left for the collector."""
        self._answers.done(len(entries))
        self._settled(how, entries, refusals, confirm)

    def _kept(self, entries: list[str]) -> list[Taken] | None:
        """The deliveries of these entries, if all are held here at priority 0 and not acked yet."""
        held, rows = self._pump.held, list[Taken]()
        for entry in entries:
            row = held.get(entry)
            if row is None or row.is_acked or "p" in entry:
                for kept in rows:
                    kept.is_acked = False
                return None
            row.is_acked = True
            rows.append(row)
        return rows

    def _leave_unsettled(self, settlement: Settlement, granted: int | None, retry_after_ms: int) -> None:
        """Refuses the entries that the rate does not allow; they may be settled later."""
        left = settlement.entries[granted or 0 :]
        if left:
            del settlement.entries[granted or 0 :]
            if settlement.rows:
                del settlement.rows[granted or 0 :]
            self._answers.done(len(left))
            error = not_granted(granted, retry_after_ms)
            for entry in left:
                self._answers.refuse_entry(error, entry)

    def _settled(self, how: str, entries: list[str], refusals: dict[str, str] | None, confirm: bool) -> None:
        if refusals is None:
            for entry in entries:
                self._answers.refuse_entry(maybe_settled(), entry)
            return
        held_s = self._let_go(how, entries, refusals)
        note_settled(self._metrics, how, self._link.address, entries, refusals, held_s)
        for entry, code in refusals.items():
            self._answers.refuse_entry(not_held(code), entry)
        if confirm:
            self._link.send(frame("settled", entries=[entry for entry in entries if entry not in refusals]))
        self._pump.run()

    def _let_go(self, how: str, entries: list[str], refusals: dict[str, str]) -> list[float]:
        """Frees the window of settled entries. Returns the hold times of the acked ones."""
        now_ms, held, held_s = self._store.clock.now_ms(), self._pump.held, []
        for entry in entries:
            row = held.get(entry)
            if row is None:
                continue
            if how != "touch" or entry in refusals:
                del held[entry]
            if how == "ack" and entry not in refusals:
                held_s.append(max(0, now_ms - row.taken_at_ms) / 1_000)
        return held_s

    # -- replies

    def _reply(self, reply: Reply) -> None:
        if not self.may_hold:
            self._settled("reply", [reply.entry], {reply.entry: "lock_lost"}, reply.confirm)
            return
        payload = opaque(reply.payload, self._store.settings.max_payload_bytes)
        if reply.more and self._store.memory.is_short:  # the last answer frees its request, a part only adds
            self._answers.refuse_entry(self._store.memory.shortage(), reply.entry)
            return

        def answer(word: str) -> None:
            self._answers.done(1)
            self._replied(reply, word)

        def spent(granted: int | None, retry_after_ms: int) -> None:
            if granted:
                self._store.settling.reply(step)
                return
            self._answers.done(1)
            self._answers.refuse_entry(not_granted(granted, retry_after_ms), reply.entry)

        backlog_end = self._pump.backlog_end
        step = ReplyStep(self._link.address, self._holder, backlog_end, reply.entry, payload, reply.more, answer)
        self._answers.expect(1)
        self._spending.spend(1, spent)

    def _replied(self, reply: Reply, word: str) -> None:
        match word:
            case "replied" if reply.more:
                if reply.confirm:
                    self._link.send(frame("settled", entries=[reply.entry]))
            case "replied":
                self._settled("reply", [reply.entry], {}, reply.confirm)
            case "not_a_request":
                self._link.send_error(Malformed("the entry is not a request", entry=reply.entry))
            case "too_large" | "outbox_full":
                self._answers.refuse_entry(no_more_parts(word, self._store.settings), reply.entry)
            case "unavailable":
                self._settled("reply", [reply.entry], None, reply.confirm)
            case _:
                self._settled("reply", [reply.entry], {reply.entry: word}, reply.confirm)
