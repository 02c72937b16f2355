"""The outbox: messages to send, kept until their outcome is known."""

from collections.abc import Awaitable, Callable

from relay.client.clock import Clock, Timer
from relay.client.connection.link import Output
from relay.client.errors import ClientError
from relay.client.journal import Journal
from relay.client.outbox.answers import Answers
from relay.client.outbox.outbox_limit import OutboxLimit
from relay.client.outbox.outcomes import Cancelled, End, Expired
from relay.client.outbox.recipient_queues import RecipientQueues
from relay.client.outbox.sent import Sent, key_of

SWEEP_S = 30.0
RECEIPT_GRACE_S = 900.0  # how long after its end the relay's own word on an expiry is waited for

KEEP = "INSERT INTO relay_outbox VALUES (?, ?, ?, ?, ?, ?, 0)"
FORGET = "DELETE FROM relay_outbox WHERE serial = ?"
WIPED = "UPDATE relay_outbox SET accepted = 0"


class Outbox:
    """Guarantees: a message is kept until its outcome is known. The same recipient and id is always one message."""

    def __init__(self, journal: Journal, clock: Clock, output: Output, limit: int, waits: bool) -> None:
        self._journal = journal
        self._clock = clock
        self._output = output
        self._serial = 0
        self._by_key: dict[tuple[str, str], Sent] = {}
        self._queues = RecipientQueues(clock, output, self.end)
        self._sweep: Timer | None = None
        self.room = OutboxLimit(limit, waits)
        self.answers = Answers(journal, clock, output, self._queues, self.all, self.find, self.end)
        self.cancel_at_relay: Callable[[Sent], Awaitable[bool]]

    def __len__(self) -> int:
        return len(self._by_key)

    def unsent(self) -> int:
        """How many messages the relay does not have."""
        return sum(sent._stage != "accepted" for sent in self._by_key.values())

    # -- its life

    async def open(self) -> None:
        """Takes up what an earlier process left."""
        rows = await self._journal.rows("SELECT * FROM relay_outbox ORDER BY serial")
        for serial, to, id, body, deadline, not_before, accepted in rows:
            sent = Sent(self, serial, to, id, body, deadline, not_before)
            self._serial = serial
            self._enter(sent)
            if accepted:
                sent._is_stored("unknown")
            else:
                self._queues.line_up(sent)
        self._plan_sweep()

    def close(self, error: ClientError) -> None:
        """Wakes all waiting senders."""
        if self._sweep is not None:
            self._sweep.cancel()
        self._queues.close()
        self.answers.note_accepted()
        for sent in self._by_key.values():
            sent._is_hopeless(error)
        self.room.close(error)

    # -- sending

    def all(self) -> list[Sent]:
        return list(self._by_key.values())

    def find(self, to: str, id: str) -> Sent | None:
        return self._by_key.get(key_of(to, id))

    def put(self, to: str, id: str, body: bytes, deadline: float, not_before: float, is_request: bool) -> Sent:
        """Takes a message; it goes out once it is kept."""
        self._serial += 1
        sent = Sent(self, self._serial, to, id, body, deadline, not_before, is_request)
        self._enter(sent)
        if is_request or not self._journal.is_durable:
            self._queues.line_up(sent)
        else:
            self._journal.put(KEEP, (sent._serial, to, id, body, deadline, not_before))
            self._journal.then(lambda: self._queues.line_up(sent))
        return sent

    def _enter(self, sent: Sent) -> None:
        self._by_key[sent._key] = sent
        self.room.enter(len(sent._body))

    # -- ends

    def end(self, sent: Sent, end: End | ClientError) -> None:
        """It is known how a message ended. What is not here any more has ended already."""
        if self._by_key.get(sent._key) is not sent:
            return
        del self._by_key[sent._key]
        if not sent._is_request:
            self._journal.put(FORGET, (sent._serial,))
        self._queues.forget(sent)
        sent._has_ended(end)
        self.room.leave(len(sent._body))

    async def cancel(self, sent: Sent) -> bool:
        if sent._stage == "ended":
            return False
        if sent._stage in ("keeping", "waiting"):
            self.end(sent, Cancelled())
            return True
        done = await self.cancel_at_relay(sent)
        if done:
            self.end(sent, Cancelled())
        return done

    # -- what happens to the connection

    def connected(self, is_new_epoch: bool) -> None:
        """A session began. What was not answered goes out again; if the store was wiped, what had been accepted too.

        That is written down together with the new epoch: nobody would know any more after a crash.
        """
        if is_new_epoch:
            self._journal.put(WIPED, ())
        stages = ("asked", "accepted") if is_new_epoch else ("asked",)
        self._queues.start_again([sent for sent in self._by_key.values() if sent._stage in stages])
        self._plan_sweep()

    # -- deadlines

    def _plan_sweep(self) -> None:
        """Some time after the beginning of a session: its receipts are heard first."""
        if self._sweep is not None:
            self._sweep.cancel()
        self._sweep = self._clock.call_later(SWEEP_S, self._sweep_up)

    def _sweep_up(self) -> None:
        """Ends what is past its deadline."""
        self._plan_sweep()
        now = self._clock.now()
        for sent in self.all():
            late_s = now - sent._deadline
            is_silent = late_s >= RECEIPT_GRACE_S and sent._stage == "accepted" and self._output.is_live()
            if is_silent or (late_s >= 0 and sent._stage == "waiting"):
                self.end(sent, Expired())

    # -- waiting for all of it

    async def until_accepted(self) -> None:
        """Returns when everything that is here now is stored by the relay, or has ended."""
        for sent in self.all():
            await sent._reached("accepted", "ended")

    async def until_empty(self) -> None:
        """Returns when it is known of everything that is here now how it ended."""
        for sent in self.all():
            await sent._reached("ended")
