"""Tasks: what became of a request, its parts and its reply, kept for as long as the request may live."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import orjson

from relay.store.batches import Call, Line, Outcome
from relay.store.calls import Calls
from relay.store.keys import as_packet, bulk
from relay.store.scripts import script

GRACE_MS = 60_000  # a task outlives its request a little, so that its end can still be read


@dataclass(frozen=True, slots=True)
class Task:
    """A request as its requester sees it. `parts` are in the order in which they came; `reply` is the last answer."""

    id: str
    requester: str
    to: str
    parts: list[orjson.Fragment]
    reply: orjson.Fragment | None
    thread: str | None = None
    turns: tuple[str, ...] = ()  # later requests that go on with this one, oldest first
    ended: str | None = None  # how it ended without a reply, if somebody has said so
    blocked: bool = False  # nothing was stored, which the requester must not be able to tell


class Tasks:
    """Keeps tasks in the requester's shard, one HASH each, which expires by itself.

    An id is unique per recipient, so two requests may share a task's name: what answers them is kept by recipient, and
    the task is that of the latest request.
    """

    def __init__(self, line: Line, calls: Calls) -> None:
        self._line = line
        self._calls = calls
        self._keys = calls.keys

    def open(
        self, requester: str, task_id: str, to: str, lives_ms: int, *, thread: str | None = None, blocked: bool = False
    ) -> None:
        """A task that waits for its reply; it goes out before whatever is handed in next. An early answer is kept."""
        key = self._keys.task(requester, task_id)
        fields = ["to", to, *(("thread", thread) if thread else ()), *((_of(to, "blocked"), "1") if blocked else ())]
        self._line.submit(Call(as_packet("HSET", key, *fields), _ignore))
        self._line.submit(Call(as_packet("PEXPIRE", key, lives_ms + GRACE_MS), _ignore))

    def answer(
        self,
        requester: str,
        task_id: str,
        to: str,
        field: str,
        payload: str,
        expires_at: int,
        arrived: Callable[[bool], None],
    ) -> None:
        """Keeps a part or the end, and tells who waits. `arrived` hears whether the store has it."""
        lives_ms = max(1, expires_at - self._calls.clock.now_ms()) + GRACE_MS
        packet = self._calls.packet(
            script("answer"),
            self._keys.shard(requester),
            [requester, task_id, _of(to, field), payload, lives_ms],
            more_keys=1,
            more_chunk=bulk(self._keys.task(requester, task_id).encode()),
        )
        self._line.submit(Call(packet, lambda _, outcome: arrived(not isinstance(outcome, Exception))))

    async def close(self, requester: str, task_id: str, to: str, how: str) -> None:
        """Keeps how a task ended without a reply, and tells who waits. A reply that comes still counts for more."""
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        expires_at = self._calls.clock.now_ms() + self._calls.settings.message_ttl_s * 1_000
        self.answer(requester, task_id, to, "ended", how, expires_at, done.set_result)
        await asyncio.shield(done)

    async def go_on(self, requester: str, task_id: str, turn: str, lives_ms: int) -> None:
        """A later request goes on with a task, which lives as long as it does. Saying it twice says it once."""
        key = self._keys.task(requester, task_id)
        await self._line.command("HSETNX", key, f"turn:{turn}", self._calls.clock.now_ms())
        await self._line.command("PEXPIRE", key, lives_ms + GRACE_MS, "GT")

    async def watch(self, requester: str, task_id: str) -> None:
        """From now on this instance is told when the task gets an answer."""
        key = self._keys.task(requester, task_id)
        await self._line.command("HSET", key, f"watch:{self._calls.instance}", "1")
        await self._line.command("PEXPIRE", key, GRACE_MS, "NX")  # if the task has just ended, nothing is left behind

    async def find(self, requester: str, task_id: str) -> Task | None:
        flat = await self._line.command("HGETALL", self._keys.task(requester, task_id))
        fields = {flat[n].decode(): flat[n + 1] for n in range(0, len(flat), 2)}
        if "to" not in fields:
            return None
        to = fields["to"].decode()
        its = {name.removesuffix(_of(to, "")): value for name, value in fields.items() if name.endswith(_of(to, ""))}
        parts = sorted((name for name in its if name.startswith("part:")), key=_position)
        turns = sorted((int(at), name.removeprefix("turn:")) for name, at in fields.items() if name.startswith("turn:"))
        return Task(
            task_id,
            requester,
            to,
            [orjson.Fragment(its[name]) for name in parts],
            orjson.Fragment(its["end"]) if "end" in its else None,
            fields["thread"].decode() if "thread" in fields else None,
            tuple(turn for _, turn in turns),
            its["ended"].decode() if "ended" in its else None,
            "blocked" in its,
        )


def _of(to: str, field: str) -> str:
    """The name of a field that belongs to one recipient."""
    return f"{field} {to}"


def _position(field: str) -> tuple[int, int]:
    """Parts are named for the outbox entry they came in, which is how they are ordered."""
    milliseconds, _, number = field.rpartition("/")[2].partition("-")
    return int(milliseconds), int(number)


def _ignore(_: Call, __: Outcome) -> None:
    """If the store is away, the send that follows is told so."""
