"""Receipts of one session: read or pushed while the client has room, deleted when it confirms."""

import asyncio
import re
from collections import deque
from functools import partial

from relay.core.intake import not_granted
from relay.core.session.agent_link import AgentLink
from relay.core.session.spending import Spending
from relay.errors import Malformed
from relay.store.agents.rates import ACK
from relay.store.record.receipt_lines import as_json
from relay.store.replies.receipts import RECEIPTS_MAX, ReceiptBatch, Receipts
from relay.store.wakes import OutboxPlace, PushedReceipts
from relay.telemetry.metrics import Metrics

READ_BYTES = 16 * 1024  # what receipts are thought to be before they are there
FRAME_BYTES = 16 * 1024  # of pushed receipts in one frame, or one push that has more
WAIT_MAX_S = 0.02  # how long a push may wait for others
MAX_PUSHED = 200  # entries of outboxes, each about 4 KiB of receipts at most, that a client has not confirmed
_CURSOR = re.compile(r"(\d{1,18}-\d{1,18})\.([0-9a-f]{1,20}\.\d{1,18})\.(\d{1,18})")


class ReceiptReader:
    """Guarantees that receipts go out once per session, in order, and that a wake during a read is not lost.

    Most receipts are pushed from the outbox of the recipient's shard. They stay there until the client has confirmed
    them. Receipts whose session was gone wait in the sender's own stream, and are read from there. A cursor covers
    both: the last entry of the stream, this session, and how many were pushed to it. A worker that takes the session
    for gone forwards what was pushed: the copy in the stream is not sent.

    Each shard pushes on its own, so receipts come in crumbs. Those that come while the store is busy share a frame.
    """

    __slots__ = (
        *("_copies", "_cursor", "_forgetting", "_has_more", "_is_reading", "_link", "_metrics", "_pushed", "_receipts"),
        *("_sent", "_session", "_spending", "_total", "_undeleted", "_unsent", "_unsent_bytes", "is_stalled"),
    )

    def __init__(self, session: str, link: AgentLink, receipts: Receipts, metrics: Metrics, spending: Spending) -> None:
        self.is_stalled = False  # receipts wait until the client has read what it was sent
        self._session = session
        self._link = link
        self._receipts = receipts
        self._metrics = metrics
        self._spending = spending
        self._cursor = "0-0"  # the last entry of the stream that was sent
        self._sent: deque[str] = deque(maxlen=RECEIPTS_MAX)  # entries of the stream that are not confirmed
        self._undeleted: list[str] = []  # confirmed, and the store could not delete them
        self._forgetting = 0  # calls under way that delete confirmed ones
        self._is_reading = False
        self._has_more = False
        self._pushed: deque[tuple[int, PushedReceipts]] = deque()  # not confirmed, with their numbers
        self._copies: dict[OutboxPlace, str] = {}  # of pushed ones -> the entry of the stream that has them too
        self._total = 0  # of those that were pushed
        self._unsent: list[bytes] = []  # pushed ones that wait for others
        self._unsent_bytes = 0

    def push(self, receipts: PushedReceipts) -> bool:
        """Sends receipts that came by themselves. False if there is no room: then they wait in the stream."""
        if len(self._pushed) >= MAX_PUSHED or self._link.output.room() == 0:
            return False
        self._put_in_line(as_json(receipts.receipts, receipts.sender))
        self._total += 1
        self._pushed.append((self._total, receipts))
        self._metrics.receipts += receipts.count
        return True

    def _put_in_line(self, texts: bytes) -> None:
        """Its frame goes out in this turn of the event loop, or when an exchange with a busy store would be over."""
        if self._unsent_bytes + len(texts) > FRAME_BYTES:
            self._flush()
        if not self._unsent:
            loop, wait_s = asyncio.get_running_loop(), min(self._receipts.busy_s(), WAIT_MAX_S)
            loop.call_later(wait_s, self._flush) if wait_s else loop.call_soon(self._flush)
        self._unsent.append(texts)
        self._unsent_bytes += len(texts)
        self._link.output.reserve(len(texts))

    def _flush(self) -> None:
        """Sends what is in line, before the cursor covers anything else."""
        if self._unsent:
            texts, self._unsent = self._unsent, []
            self._link.output.reserve(-self._unsent_bytes)
            self._unsent_bytes = 0
            self._link.send(_frame(self._place(), b",".join(texts)))

    def has(self, place: OutboxPlace) -> bool:
        """Whether these were pushed and are not confirmed."""
        return any(pushed.place == place for _, pushed in self._pushed)

    def end(self) -> None:
        """The session has ended: unconfirmed receipts go to the stream, for the next session."""
        while self._pushed:
            self._receipts.hand_over(self._pushed.popleft()[1])

    def _place(self) -> str:
        return f"{self._cursor}.{self._session}.{self._total}"

    def read(self) -> None:
        """Fetches the receipts that came since the last look."""
        if self._is_reading:
            self._has_more = True
        elif self._link.output.room() == 0:
            self._has_more = self.is_stalled = True
        else:
            self._is_reading = True
            self._link.output.reserve(READ_BYTES)
            self._delete([])
            # If it has all confirmed, what is there is unread, also what a failover has brought back from before.
            is_known = self._sent or self._copies or self._undeleted or self._forgetting
            after = self._cursor if is_known else "0-0"
            self._receipts.read(self._link.address, after, self._got)

    def resume(self) -> None:
        """The client has read what it was sent."""
        self.is_stalled = False
        if self._has_more and not self._is_reading:
            self.read()

    def _got(self, batches: list[ReceiptBatch] | None) -> None:
        self._is_reading = False
        self._link.output.reserve(-READ_BYTES)
        if batches:
            self._flush()
            self._cursor = batches[-1].cursor
            self._send([batch for batch in batches if not self._was_pushed(batch)])
        if self._has_more or batches:
            self._has_more = False
            self.read()

    def _was_pushed(self, batch: ReceiptBatch) -> bool:
        """Whether the client has these already. Then the copy is deleted, once they are confirmed."""
        if batch.place is None:
            return False
        if self.has(batch.place):
            self._copies[batch.place] = batch.cursor
            return True
        if self._receipts.was_confirmed(batch.place):
            self._delete([batch.cursor])
            return True
        return False

    def _send(self, batches: list[ReceiptBatch]) -> None:
        if not batches:
            return
        self._sent.extend(batch.cursor for batch in batches)
        self._metrics.receipts += sum(batch.count for batch in batches)
        texts = b",".join(as_json(batch.receipts, self._link.address) for batch in batches if batch.receipts)
        self._link.send(_frame(self._place(), texts, sum(batch.dropped for batch in batches)))

    def confirm(self, cursor: str) -> None:
        """Forgets everything up to the cursor. Raises Malformed."""
        match = _CURSOR.fullmatch(cursor)
        if match is None:
            raise Malformed("Expected a cursor that came with receipts - at `$.cursor`")
        stream_id, session, number = match.groups()

        def spent(granted: int | None, retry_after_ms: int) -> None:
            if granted:
                self._forget(stream_id, int(number) if session == self._session else 0)
            else:
                self._link.send_error(not_granted(granted, retry_after_ms))

        self._spending.spend(1, spent, ACK)

    def _forget(self, stream_id: str, number: int) -> None:
        confirmed = []
        while self._pushed and self._pushed[0][0] <= number:
            receipts = self._pushed.popleft()[1]
            self._receipts.confirmed(receipts)
            if copy := self._copies.pop(receipts.place, None):
                confirmed.append(copy)
        while self._sent and _order(self._sent[0]) <= _order(stream_id):
            confirmed.append(self._sent.popleft())
        self._delete(confirmed)

    def _delete(self, confirmed: list[str]) -> None:
        """Deletes entries of the stream, with those that the store could not delete before."""
        entries, self._undeleted = self._undeleted + confirmed, []
        if entries:
            self._forgetting += 1
            self._receipts.forget(self._link.address, entries, partial(self._forgot, entries))

    def _forgot(self, entries: list[str], well: bool) -> None:
        self._forgetting -= 1
        if not well:
            self._undeleted += entries


def _order(entry: str) -> tuple[int, int]:
    milliseconds, _, number = entry.partition("-")
    return int(milliseconds), int(number)


def _frame(cursor: str, receipts: bytes, dropped: int = 0) -> bytes:
    return b'{"op":"receipts","cursor":"%b","receipts":[%b]%b}' % (
        cursor.encode(),
        receipts,
        b',"dropped":%d' % dropped if dropped else b"",
    )
