"""A queue for each recipient, so that its messages keep their order. All queues share frames."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from relay.client.clock import Clock, Timer
from relay.client.connection.backoff import Backoff
from relay.client.connection.frames import Refusal
from relay.client.connection.link import Output
from relay.client.errors import ClientError, QueueFull
from relay.client.outbox.outcomes import End, Expired
from relay.client.outbox.sent import Sent

log = logging.getLogger(__name__)

MAX_PER_FRAME = 500
MAX_FRAME_BYTES = 2**20
MAX_ASKED = 4_000  # messages without an answer: the relay reads on at 5,000
REFUSED_S = (10.0, 600.0)
UNAVAILABLE_S = (0.5, 30.0)  # the store is failing over: nothing to do with the recipient


class RecipientQueue:
    """One recipient: at most one frame is under way, so that the order is kept."""

    __slots__ = ("asked", "full_until", "refused", "timer", "todo", "unavailable")

    def __init__(self) -> None:
        self.todo: deque[Sent] = deque()
        self.asked = 0  # messages without an answer
        self.timer: Timer | None = None  # the recipient was refused: not before it rings
        self.full_until = 0.0  # the mailbox was full, and is not asked before that
        self.refused = Backoff(*REFUSED_S)
        self.unavailable = Backoff(*UNAVAILABLE_S)

    def is_ready(self) -> bool:
        return bool(self.todo) and not self.asked and self.timer is None

    def is_idle(self) -> bool:
        return not self.todo and not self.asked and self.timer is None

    def put_back(self, some: Iterable[Sent]) -> None:
        """In the order of sending, whatever happened to them."""
        self.todo = deque(sorted([*some, *self.todo], key=lambda sent: sent._serial))

    def go_on(self) -> None:
        """Whatever it waits for is over."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class RecipientQueues:
    """Guarantees: messages to one recipient are stored in the order of their sending."""

    def __init__(self, clock: Clock, output: Output, end: Callable[[Sent, End | ClientError], None]) -> None:
        self._clock = clock
        self._output = output
        self._end = end
        self._asked: dict[str, Sent] = {}  # by id alone: `accepted` does not say to whom
        self._queues: dict[str, RecipientQueue] = {}
        self._pump_asked = False

    def close(self) -> None:
        for queue in self._queues.values():
            queue.go_on()

    def line_up(self, sent: Sent) -> None:
        """It is kept, and goes out in its turn."""
        if sent._stage == "ended":
            return  # it was taken back meanwhile
        queue = self._queue(sent)
        if sent._is_request and queue.timer is not None and queue.full_until > self._clock.now():
            self._end(sent, QueueFull(queue.full_until - self._clock.now()))
            return
        sent._is_waiting()
        queue.todo.append(sent)
        self.pump_soon()

    def _queue(self, sent: Sent) -> RecipientQueue:
        name = sent._key[0]
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = RecipientQueue()
        return queue

    # -- frames

    def pump_soon(self) -> None:
        """Messages of one turn of the event loop share frames."""
        if not self._pump_asked:
            self._pump_asked = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._pump_asked = False
        if not self._output.is_live():
            return
        now = self._clock.now()
        bodies: list[bytes] = []
        size = 0
        for sent in self._next(now):
            body = _whole(sent, now)
            if bodies and (len(bodies) >= MAX_PER_FRAME or size + len(body) > MAX_FRAME_BYTES):
                self._say(bodies)
                bodies, size = [], 0
            bodies.append(body)
            size += len(body)
        if bodies:
            self._say(bodies)

    def _say(self, bodies: list[bytes]) -> None:
        self._output.say(b'{"op":"send","messages":[%b]}' % b",".join(bodies))

    def _next(self, now: float) -> Iterator[Sent]:
        """All messages that may go out now, marked as sent."""
        for name, queue in list(self._queues.items()):
            if queue.is_ready():
                yield from self._next_of(queue, now)
            if queue.is_idle():
                del self._queues[name]

    def _next_of(self, queue: RecipientQueue, now: float) -> Iterator[Sent]:
        todo, asked = queue.todo, self._asked
        while todo and queue.asked < MAX_PER_FRAME and len(asked) < MAX_ASKED and todo[0].id not in asked:
            sent = todo.popleft()
            if sent._stage == "ended":
                continue
            if sent._deadline <= now:
                self._end(sent, Expired())
                continue
            sent._stage = "asked"
            sent._queue = queue
            asked[sent.id] = sent
            queue.asked += 1
            yield sent

    # -- what the relay answers

    def accepted(self, id: str) -> Sent | None:
        sent = self._answered(id)
        queue = sent._queue if sent is not None else None
        if queue is not None and (queue.refused.attempts or queue.unavailable.attempts):
            queue.refused.reset()
            queue.unavailable.reset()
        return sent

    def _answered(self, id: str) -> Sent | None:
        sent = self._asked.pop(id, None)
        if sent is not None and sent._queue is not None:
            sent._queue.asked -= 1
        return sent

    def refused(self, refusals: Iterable[Refusal]) -> Iterator[tuple[Sent, Refusal]]:
        """Gives those that are not to be tried again; the others go back to the head of their queues, which rest."""
        again: dict[RecipientQueue, tuple[list[Sent], Refusal]] = {}
        for refusal in refusals:
            sent = self._answered(refusal.id) if refusal.id is not None else None
            if sent is None or sent._stage == "ended":
                continue
            if not refusal.retryable or (sent._is_request and refusal.code == "queue_full"):
                yield sent, refusal
            else:
                sent._stage, sent.held_up_by = "waiting", refusal.code
                again.setdefault(self._queue(sent), ([], refusal))[0].append(sent)
        for queue, (some, refusal) in again.items():
            self._put_off(queue, some, refusal)
        self.pump_soon()

    def _put_off(self, queue: RecipientQueue, some: list[Sent], refusal: Refusal) -> None:
        queue.put_back(some)
        backoff = queue.unavailable if refusal.code == "store_unavailable" else queue.refused
        at_least_s = None if refusal.retry_after_ms is None else refusal.retry_after_ms / 1_000
        pause_s = backoff.next_s(at_least_s)
        log.info("%s: %s, next attempt in %.1f s", some[0].to, refusal.code, pause_s)
        if queue.timer is None:
            queue.timer = self._clock.call_later(pause_s, lambda: self._rested(queue))
        if refusal.code == "queue_full":
            queue.full_until = self._clock.now() + pause_s
            for sent in [one for one in queue.todo if one._is_request]:
                self._end(sent, QueueFull(pause_s))

    def _rested(self, queue: RecipientQueue) -> None:
        queue.timer = None
        self.pump_soon()

    # -- what happens otherwise

    def forget(self, sent: Sent) -> None:
        """It has ended: no answer is waited for any more."""
        if sent._stage == "asked" and self._asked.get(sent.id) is sent:
            self._answered(sent.id)

    def unanswered(self) -> list[Sent]:
        return list(self._asked.values())

    def start_again(self, some: list[Sent]) -> None:
        """A session began, and nothing is under way in it: these go out first, and nobody rests."""
        self._asked.clear()
        by_queue: dict[RecipientQueue, list[Sent]] = {}
        for sent in some:
            sent._stage = "waiting"
            by_queue.setdefault(self._queue(sent), []).append(sent)
        for queue in self._queues.values():
            queue.asked = 0
            queue.go_on()
            queue.put_back(by_queue.get(queue, ()))
        self.pump_soon()


def _whole(sent: Sent, now: float) -> bytes:
    """The message with the time that it has left."""
    delay = b',"delay_s":%.3f' % (sent._not_before - now) if sent._not_before > now else b""
    return b'%b,"ttl_s":%.3f%b}' % (sent._body, max(0.001, sent._deadline - now), delay)
