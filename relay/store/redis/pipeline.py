"""The path of every command to the server: submitted here, executed by the master that has its keys."""

import asyncio
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from typing import Any

from relay.store.redis.command import Command, Outcome
from relay.store.redis.resp import encode_command
from relay.store.redis.scripts import script
from relay.store.redis.servers.cluster import ClusterMasters
from relay.store.redis.servers.connect import Server
from relay.store.redis.servers.link import Ask
from relay.store.redis.servers.master import Master
from relay.store.redis.servers.masters import Masters, OneMaster
from relay.store.redis.servers.topology import Topology

__all__ = ["Command", "CommandPipeline", "Outcome"]

Compare = Callable[[Iterable[int], Ask], Awaitable[bool]]
Source = Callable[[Container[int] | None], Iterable[Command]]


class CommandPipeline:
    """Callers hand in commands and are called back. All commands for one master go out together.

    `slots` says where each shard is on a Cluster.
    """

    def __init__(
        self,
        server: Server | Topology,
        script_names: Iterable[str] = (),
        replicate: bool = False,
        slots: Sequence[int] = (),
    ) -> None:
        self.sources: list[Source] = []  # each gives the commands that wait for these shards, or for all
        self.exchange = 0  # the number of the exchange whose commands are being made; see fence.lua
        self.batch_sizes: Callable[[float], None] = lambda _: None  # how many commands went out together
        self.exchange_s: Callable[[float], None] = lambda _: None  # how long each exchange took
        self.on_reached: Compare = _trust  # looks whether a server has what it promised on an earlier connection
        self._took_s = 0.0  # and how long the last one did
        self._last_exchange = 0
        self.is_cluster = isinstance(server, Topology)
        self.publish_word = "SPUBLISH" if self.is_cluster else "PUBLISH"  # on a Cluster a channel is in one slot
        scripts = [script(name) for name in script_names]
        self.masters: Masters = (
            ClusterMasters(self, server, scripts, replicate, slots)
            if isinstance(server, Topology)
            else OneMaster(self, server, scripts, replicate, len(slots))
        )
        self.run = self.masters.run
        self.finish = self.masters.finish

    def ring(self, shard: int) -> None:
        """Something waits for this shard."""
        self.masters.of_shard(shard).ring()

    def ring_later(self, shard: int) -> None:
        """Something does, and nobody waits for what comes of it."""
        self.masters.of_shard(shard).ring_later()

    def submit(self, command: Command) -> None:
        """One command that is not gathered with others like it, but travels with them."""
        self.masters.of_command(command).submit(command)

    def submit_later(self, command: Command) -> None:
        """One command that nobody waits for: it travels with whatever goes out next."""
        self.masters.of_command(command).submit(command, is_patient=True)

    async def command(self, *parts: str | bytes | int, needs_replicas: bool = False) -> Outcome:
        """A plain command and its reply. Raises StoreUnavailable. Cancelling the caller leaves the command alone."""
        return await self.reply(encode_command(*parts), needs_replicas=needs_replicas)

    async def reply(self, packet: bytes, may_repeat: bool = True, needs_replicas: bool = False) -> Outcome:
        """The reply to one command; see command()."""
        answer = _Answer()
        self.submit(Command(packet, answer.done, may_repeat, needs_replicas=needs_replicas))
        return await answer.outcome()

    async def of_each(self, *parts: str | bytes | int) -> dict[Master, Any]:
        """The answer of every master to a command, or StoreUnavailable in its place."""
        asked = {master: _Answer() for master in await self.masters.known()}
        for master, answer in asked.items():
            master.submit(Command(encode_command(*parts), answer.done))
        return {master: await answer.future for master, answer in asked.items()}

    async def info_of_each(self, *sections: str) -> dict[Master, dict[str, str]]:
        """INFO of every master that answers. Raises StoreUnavailable if none does."""
        replies = await self.of_each("INFO", *sections)
        answers = {master: reply for master, reply in replies.items() if not isinstance(reply, Exception)}
        if not answers:
            raise next(iter(replies.values()))
        return {
            master: dict(line.split(":", 1) for line in reply.decode(errors="replace").splitlines() if ":" in line)
            for master, reply in answers.items()
        }

    def busy_s(self) -> float:
        """How long an exchange takes now; 0 while a master has none under way."""
        return self._took_s if all(master.under_way for master in self.masters.all) else 0.0

    # -- for the masters

    def answered(self, after_s: float) -> None:
        """An exchange has ended after this time."""
        self._took_s = after_s
        self.exchange_s(after_s)

    async def compare(self, shards: Iterable[int], ask: Ask) -> bool:
        """A server was reached anew, or has got these shards. False if it lacks what was promised."""
        return await self.on_reached(shards, ask)

    def gather(self, waiting: list[Command], shards: Container[int] | None) -> list[Command]:
        """The commands of a new exchange: these, and what waits for these shards, or for all."""
        self._last_exchange += 1
        self.exchange = self._last_exchange
        for source in self.sources:
            waiting.extend(source(shards))
        if waiting:
            self.batch_sizes(len(waiting))
        return waiting


async def _trust(_: Iterable[int], __: Ask) -> bool:
    """Nothing was promised."""
    return True


class _Answer:
    """The outcome of one command, for somebody who may have gone away by then."""

    def __init__(self) -> None:
        self.future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def done(self, outcome: Outcome) -> None:
        if not self.future.done():
            self.future.set_result(outcome)

    async def outcome(self) -> Outcome:
        outcome = await self.future
        if isinstance(outcome, Exception):
            raise outcome
        return outcome
