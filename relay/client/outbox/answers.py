"""Answers to sent messages: accepted, refused, and how they ended."""

from collections.abc import Callable, Iterable

from relay.client.clock import Clock
from relay.client.connection.frames import Accepted, Receipt, Receipts, Refusal, frame
from relay.client.connection.link import Output
from relay.client.errors import ClientError, QueueFull, Refused
from relay.client.journal import Journal
from relay.client.outbox.outcomes import Cancelled, Dead, Delivered, End, Expired
from relay.client.outbox.recipient_queues import MAX_FRAME_BYTES, RecipientQueues
from relay.client.outbox.sent import Sent

NOTE_ACCEPTED_S = 1.0  # most receipts come sooner than that, and save the writing
ACCEPT = "UPDATE relay_outbox SET accepted = 1 WHERE serial = ?"


class Answers:
    """Guarantees: a receipt is confirmed only after the outcome has been stored."""

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        output: Output,
        queues: RecipientQueues,
        all: Callable[[], list[Sent]],
        find: Callable[[str, str], Sent | None],
        end: Callable[[Sent, End | ClientError], None],
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._output = output
        self._queues = queues
        self._all = all
        self._find = find
        self._end = end
        self._to_note: list[Sent] = []  # accepted, and not yet noted as such
        self.look_up: Callable[[Sent], None] = lambda _: None

    def accepted(self, answer: Accepted) -> None:
        for id in answer.ids:
            self._accept(id, answer.durability)
        for id in answer.duplicate_ids:
            sent = self._accept(id, answer.durability)
            if sent is not None:
                sent.is_duplicate = True
                if answer.ended is None:
                    self.look_up(sent)  # it may have ended long ago, and then no receipt comes
        self._end_all(answer.ended or ())
        self._queues.pump_soon()

    def _accept(self, id: str, durability: str) -> Sent | None:
        sent = self._queues.accepted(id)
        if sent is not None and sent._stage == "asked":
            sent._is_stored(durability)
            if self._journal.is_durable and not sent._is_request:
                self._note(sent)
        return sent

    def _note(self, sent: Sent) -> None:
        if not self._to_note:
            self._clock.call_later(NOTE_ACCEPTED_S, self.note_accepted)
        self._to_note.append(sent)

    def note_accepted(self) -> None:
        """Writes down what the relay has."""
        noted, self._to_note = self._to_note, []
        for sent in noted:
            if sent._stage == "accepted":
                self._journal.put(ACCEPT, (sent._serial,))

    def refused(self, refusals: Iterable[Refusal]) -> None:
        for sent, refusal in self._queues.refused(refusals):
            if refusal.retryable:
                self._end(sent, QueueFull((refusal.retry_after_ms or 0) / 1_000))
            else:
                self._end(sent, Refused(refusal.code, refusal.message))

    def frame_was_too_large(self) -> None:
        """The relay closed the session for it. Only a message that is alone in its frame can be the reason."""
        for sent in self._queues.unanswered():
            if len(sent._body) >= MAX_FRAME_BYTES:
                self._end(sent, Refused("too_large", "the message is larger than any frame that the relay takes"))

    def receipts(self, found: Receipts) -> None:
        """Ends the messages of these receipts. They are confirmed once that is stored."""
        self._end_all(found.receipts)
        if found.dropped:
            self._look_up_all()
        confirm = frame("receipts_ack", cursor=found.cursor)
        self._journal.then(lambda: self._output.say(confirm))

    def _end_all(self, ends: Iterable[Receipt]) -> None:
        for end in ends:
            sent = self._find(end.to, end.id)
            if sent is not None:
                self._end(sent, _end_of(end))

    def _look_up_all(self) -> None:
        """The relay had too many receipts: those that are missing do not come any more."""
        for sent in self._all():
            if sent._stage == "accepted":
                self.look_up(sent)


def _end_of(receipt: Receipt) -> End:
    if receipt.state == "delivered":
        return Delivered(receipt.attempt, receipt.was_stored)
    if receipt.state == "dead":
        return Dead(receipt.reason, receipt.attempt)
    return Cancelled() if receipt.state == "cancelled" else Expired()
