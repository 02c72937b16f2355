"""Tasks: the state, parts and reply of a request, kept as long as the request may live."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import orjson

from relay.errors import StoreUnavailable
from relay.store.callbacks import answer_to
from relay.store.redis.encoder import ScriptEncoder, keyed_packet
from relay.store.redis.pipeline import Command, CommandPipeline, Outcome
from relay.store.redis.resp import encode_command
from relay.store.redis.scripts import script

GRACE_MS = 60_000  # a task outlives its request a little, so that its end can still be read
ENDS = ("end", "ended")  # the fields that end a task


@dataclass(frozen=True, slots=True)
class Task:
    """A request as its requester sees it. `parts` are in the order in which they came; `reply` is the last answer."""

    id: str
    requester: str
    to: str
    parts: list[orjson.Fragment]  # those that were asked for
    reply: orjson.Fragment | None
    thread: str | None = None
    turns: tuple[str, ...] = ()  # later requests that go on with this one, oldest first
    ended: str | None = None  # how it ended without a reply, if somebody has said so
    part_count: int = 0  # how many parts there are
    parts_bytes: int = 0  # of those that were asked for
    reply_bytes: int = 0


class Tasks:
    """Keeps tasks in the requester's shard, one HASH each, which expires by itself.

    An id is unique per recipient, so two requests may share a task's name. Their answers are kept by recipient, and the
    task is that of the latest request. The tasks and bytes of a requester are limited; the oldest are dropped.
    """

    def __init__(self, pipeline: CommandPipeline, encoder: ScriptEncoder) -> None:
        self._pipeline = pipeline
        self._encoder = encoder
        self._keys = encoder.keys

    def open(
        self,
        requester: str,
        task_id: str,
        to: str,
        lives_ms: int,
        *,
        thread: str | None = None,
        opened: Callable[[bool], None] = lambda _: None,
    ) -> None:
        """A task that waits for its reply. An answer that came before stays. `opened` hears if the store has it."""
        fields = ["to", to, *(("thread", thread) if thread else ())]
        self._keep(requester, task_id, fields, False, lives_ms + GRACE_MS, opened)

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
        lives_ms = max(1, expires_at - self._encoder.clock.now_ms()) + GRACE_MS
        self._keep(requester, task_id, [_of(to, field), payload], field in ENDS, lives_ms, arrived)

    def _keep(
        self,
        requester: str,
        task_id: str,
        fields: list[str],
        has_ended: bool,
        lives_ms: int,
        arrived: Callable[[bool], None],
    ) -> None:
        settings = self._encoder.settings
        names = self._keys.task(requester, task_id), self._keys.tasks(requester), self._keys.task_sizes(requester)

        def done(outcome: Outcome) -> None:
            if not isinstance(outcome, Exception) and outcome:
                self._forget(requester, (gone.decode() for gone in outcome))
            arrived(not isinstance(outcome, Exception))

        packet = self._encoder.packet(
            script("answer"),
            self._keys.shard(requester),
            [requester, task_id, fields, has_ended, lives_ms, settings.max_tasks, settings.mailbox_max_bytes],
            keys=names,
        )
        self._pipeline.submit(Command(packet, done, needs_replicas=True))

    def _forget(self, requester: str, task_ids: Iterable[str]) -> None:
        keys = [self._keys.task(requester, task_id) for task_id in task_ids]
        self._pipeline.submit(Command(encode_command("UNLINK", *keys), lambda *_: None))

    async def close(self, requester: str, task_id: str, to: str, how: str) -> None:
        """Keeps how a task ended without a reply, and tells who waits. A reply that comes still counts for more."""
        expires_at = self._encoder.clock.now_ms() + self._encoder.settings.message_ttl_s * 1_000
        await answer_to(partial(self.answer, requester, task_id, to, "ended", how, expires_at))

    async def go_on(self, requester: str, task_id: str, turn: str, lives_ms: int) -> None:
        """A later request goes on with a task, which lives as long as it does. Idempotent. Raises StoreUnavailable."""
        key, field = self._keys.task(requester, task_id), f"turn:{turn}"
        if await self._pipeline.command("HEXISTS", key, field):
            return
        now_ms = str(self._encoder.clock.now_ms())
        keep = partial(self._keep, requester, task_id, [field, now_ms], False, lives_ms + GRACE_MS)
        if not await answer_to(keep):
            raise StoreUnavailable("the task could not be kept; the same again is safe")

    async def follow(self, requester: str, task_id: str) -> None:
        """From now on this instance is told when the task gets an answer."""
        await self._pipeline.reply(
            keyed_packet(script("follow"), self._keys.task(requester, task_id), f"watch:{self._encoder.instance}")
        )

    async def size(self, requester: str, task_id: str) -> int:
        """About how many bytes are kept with a task."""
        return int(await self._pipeline.command("HGET", self._keys.task_sizes(requester), task_id) or 0)

    async def find(
        self, requester: str, task_id: str, parts_after: int | None = 0, most_parts: int | None = None
    ) -> Task | None:
        """A task with its parts behind that number, or as many of them; without any if the number is None."""
        key = self._keys.task(requester, task_id)
        recipient, names = await asyncio.gather(
            self._pipeline.command("HGET", key, "to"), self._pipeline.command("HKEYS", key)
        )
        if recipient is None:
            return None
        to = recipient.decode()
        fields = {name.decode().removesuffix(_of(to, "")): name for name in names}
        parts = sorted((name for name in fields if name.startswith("part:") and " " not in name), key=_position)
        wanted = [] if parts_after is None else parts[parts_after:][:most_parts]
        few = [name for name in ("end", "ended", "thread") if name in fields]
        turns = [name for name in fields if name.startswith("turn:")]
        asked = [*wanted, *few, *turns]
        values = await self._pipeline.command("HMGET", key, *(fields[name] for name in asked)) if asked else []
        its = {name: value for name, value in zip(asked, values, strict=True) if value is not None}
        return Task(
            task_id,
            requester,
            to,
            [orjson.Fragment(its[name]) for name in wanted if name in its],
            orjson.Fragment(its["end"]) if "end" in its else None,
            its["thread"].decode() if "thread" in its else None,
            tuple(turn.removeprefix("turn:") for turn in sorted(turns, key=lambda turn: (int(its.get(turn, 0)), turn))),
            its["ended"].decode() if "ended" in its else None,
            len(parts),
            sum(len(its[name]) for name in wanted if name in its),
            len(its.get("end", b"")),
        )


def _of(to: str, field: str) -> str:
    """The name of a field that belongs to one recipient."""
    return f"{field} {to}"


def _position(field: str) -> tuple[int, int]:
    """Parts are named for the outbox entry they came in, which is how they are ordered."""
    milliseconds, _, number = field.rpartition("/")[2].partition("-")
    return int(milliseconds), int(number)
