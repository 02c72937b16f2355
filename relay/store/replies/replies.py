"""Replies to requests on their way: from the outbox to the task and into the requester's mailbox."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from msgspec import Raw

from relay.protocol.message import Message
from relay.store import readable
from relay.store.callbacks import answer_to
from relay.store.mailbox.accept import Accepting
from relay.store.mailbox.outcomes import AcceptOutcome, Full, Stored, Unavailable
from relay.store.record.draft import Draft
from relay.store.redis.encoder import ScriptEncoder
from relay.store.redis.pipeline import Command, CommandPipeline, Outcome
from relay.store.redis.resp import encode_command
from relay.store.replies.receipts import Receipts
from relay.store.replies.tasks import Tasks

TASK_ONLY = "2"  # the request came over HTTP: its reply is kept with the task and nowhere else
OWED_MAX = 10_000  # answers that wait for room in one requester's mailbox; later ones are kept with their task only
OWED_AT_ONCE = 100
OWED_AGAIN_MS = 10_000  # how long a full mailbox is left alone


@dataclass(frozen=True, slots=True)
class TaskAnswer:
    """A part or the end of a reply, without its payload, which is kept with the task."""

    origin: str  # the outbox entry that it came in
    requester: str
    replier: str
    request_id: str
    expires_at: int
    what: str  # part or end

    @property
    def field(self) -> str:
        """Where the task keeps it."""
        return "end" if self.what == "end" else f"part:{self.origin}"

    def note(self) -> str:
        return "\t".join((self.origin, self.replier, self.request_id, str(self.expires_at), self.what))

    @classmethod
    def of_note(cls, requester: str, note: bytes) -> "TaskAnswer":
        """Raises ValueError."""
        origin, replier, request_id, expires_at, what = note.decode().split("\t")
        return cls(origin, requester, replier, request_id, int(expires_at), what)


def _read_reply(origin: str, reply: bytes) -> tuple[TaskAnswer, str, str]:
    """The answer, where it goes, and its payload. Raises ValueError."""
    requester, replier, request_id, expires_at, what, where, payload = reply.decode().split("\t", 6)
    return TaskAnswer(origin, requester, replier, request_id, int(expires_at), what), where, payload


class Replies:
    """A reply is stored in the same step as the ack of its request. Forwarding is idempotent."""

    def __init__(
        self, pipeline: CommandPipeline, encoder: ScriptEncoder, accepting: Accepting, receipts: Receipts, tasks: Tasks
    ) -> None:
        self._pipeline = pipeline
        self._encoder = encoder
        self._accepting = accepting
        self._tasks = tasks
        self.stored = 0  # answers that this process has put into mailboxes
        receipts.on_reply = self._forward

    def _forward(self, origin: str, reply: bytes, arrived: Callable[[bool], None]) -> None:
        shard = int(origin.partition("/")[0])
        read = readable.readable(self._encoder.keys.outbox(shard), [reply], partial(_read_reply, origin))
        if not read:
            arrived(False)
            return
        ((answer, where, payload),) = read
        if answer.expires_at <= self._encoder.clock.now_ms():
            arrived(True)
            return

        def sent_on(outcome: AcceptOutcome) -> None:
            if isinstance(outcome, Full):
                self._owe(answer, arrived)
            else:
                arrived(not isinstance(outcome, Unavailable))

        def kept(well: bool) -> None:
            if well and where != TASK_ONLY:
                self._send_on(answer, payload.encode(), sent_on)
            else:
                arrived(well)

        asked = answer.requester, answer.request_id, answer.replier
        self._tasks.answer(*asked, answer.field, payload, answer.expires_at, kept)

    def _send_on(self, answer: TaskAnswer, payload: bytes, sent: Callable[[AcceptOutcome], None]) -> None:
        """Into the requester's mailbox, like any message."""
        message = Message(
            id=f"reply:{answer.origin}",
            to=answer.requester,
            payload=Raw(payload),
            reply_to=answer.request_id,
            ttl_s=max(1, answer.expires_at - self._encoder.clock.now_ms()) / 1_000,
            receipt=False,
        )

        def answered(_: Draft, outcome: AcceptOutcome) -> None:
            self.stored += isinstance(outcome, Stored)
            sent(outcome)

        self._accepting.accept(self._accepting.draft(answer.replier, message, answered, is_part=answer.what == "part"))

    # -- what a full mailbox is owed

    def _owe(self, answer: TaskAnswer, arrived: Callable[[bool], None]) -> None:
        """The requester's mailbox is full: the answer stays with its task, and a note says that it is still to go."""
        keys, again_ms = self._encoder.keys, self._encoder.clock.now_ms() + OWED_AGAIN_MS
        owed, owing = keys.owed(answer.requester), keys.owing(keys.shard(answer.requester))
        notes = (
            encode_command("RPUSH", owed, answer.note()),
            encode_command("LTRIM", owed, 0, OWED_MAX - 1),
            encode_command("PEXPIRE", owed, keys.ttl_ms),
            encode_command("ZADD", owing, again_ms, answer.requester),
        )
        outcomes: list[Outcome] = []

        def noted(outcome: Outcome) -> None:
            outcomes.append(outcome)
            if len(outcomes) == len(notes):
                arrived(not any(isinstance(outcome, Exception) for outcome in outcomes))

        for packet in notes:
            self._pipeline.submit(Command(packet, noted, needs_replicas=True))

    async def send_owed(self, shard: int, now_ms: int) -> int:
        """Tries again what did not fit into mailboxes of this shard. Returns how many answers were sent on."""
        owing = self._encoder.keys.owing(shard)
        due = await self._pipeline.command("ZRANGE", owing, "-inf", now_ms, "BYSCORE", "LIMIT", 0, OWED_AT_ONCE)
        return sum([await self._send_owed_to(requester, now_ms) for requester in readable.names(owing, due)])

    async def _send_owed_to(self, requester: str, now_ms: int) -> int:
        keys = self._encoder.keys
        owed, owing = keys.owed(requester), keys.owing(keys.shard(requester))
        count = 0
        for note in await self._pipeline.command("LRANGE", owed, 0, OWED_AT_ONCE - 1):
            answer = readable.read_or(owed, note, partial(TaskAnswer.of_note, requester), None)
            if answer is not None and not await self._pay(answer):
                await self._pipeline.command("ZADD", owing, now_ms + OWED_AGAIN_MS, requester)
                return count
            await self._pipeline.command("LREM", owed, 1, note)
            count += 1
        await self._pipeline.command("ZREM", owing, requester)
        if await self._pipeline.command("EXISTS", owed):  # looked at last: what was noted meanwhile is not forgotten
            await self._pipeline.command("ZADD", owing, now_ms, requester)
        return count

    async def _pay(self, answer: TaskAnswer) -> bool:
        """Whether an answer need not be tried again: it is in the mailbox, or gone with its task."""
        key = self._encoder.keys.task(answer.requester, answer.request_id)
        payload = await self._pipeline.command("HGET", key, f"{answer.field} {answer.replier}")
        if payload is None or answer.expires_at <= self._encoder.clock.now_ms():
            return True
        outcome = await answer_to(partial(self._send_on, answer, payload))
        return not isinstance(outcome, Full | Unavailable)
