"""The masters that have the relay's keys: one, if there is one server."""

from collections.abc import Container, Iterable, Sequence
from typing import Protocol

from relay.errors import StoreUnavailable
from relay.store.redis.command import Command
from relay.store.redis.scripts import Script
from relay.store.redis.servers.connect import Server
from relay.store.redis.servers.link import Ask
from relay.store.redis.servers.master import Master, Switchboard


class Gathering(Protocol):
    """Where masters get commands from: the pipeline."""

    def answered(self, after_s: float) -> None:
        """An exchange has ended after this time."""

    def gather(self, waiting: list[Command], shards: Container[int] | None) -> list[Command]:
        """The commands of a new exchange: these, and what is gathered for these shards, or for all."""

    async def compare(self, shards: Iterable[int], ask: Ask) -> bool:
        """Looks whether a server has what was promised of these shards. Raises OSError or RedisError."""


class Masters(Switchboard, Protocol):
    """Which master executes which command."""

    @property
    def all(self) -> Sequence[Master]:
        """The masters that have keys of the relay."""

    async def known(self) -> Sequence[Master]:
        """The masters that have keys of the relay, once it is known who they are, or will not be soon."""

    def of_shard(self, shard: int) -> Master: ...

    def of_command(self, command: Command) -> Master: ...

    async def run(self) -> None:
        """Carries out what is submitted, for ever."""

    async def finish(self) -> None:
        """Returns when everything submitted so far has been carried out, and what came of it."""


class OneMaster(Masters):
    """One server, or the one that Sentinels name, has all keys."""

    def __init__(
        self, pipeline: Gathering, server: Server, scripts: Sequence[Script], replicate: bool, shards: int
    ) -> None:
        self._pipeline = pipeline
        self._shards = range(shards)
        self._master = Master(server, self, scripts, replicate)

    @property
    def all(self) -> Sequence[Master]:
        return (self._master,)

    async def known(self) -> Sequence[Master]:
        return self.all

    def of_shard(self, _: int) -> Master:
        return self._master

    def of_command(self, _: Command) -> Master:
        return self._master

    async def run(self) -> None:
        await self._master.run()

    async def finish(self) -> None:
        await self._master.finish()

    # -- for the master

    def gather(self, master: Master) -> list[Command]:
        waiting, master.waiting = master.waiting, []
        return self._pipeline.gather(waiting, None)

    def keep_own(self, _: Master, commands: list[Command]) -> list[Command]:
        return commands

    def turned_away(self, _: Master, command: Command, __: str) -> None:
        command.hand_out(StoreUnavailable("the server is a node of a cluster and has only a part of the keys"))

    def landed(self, _: Command) -> None:
        """Nothing goes astray."""

    def refusal(self, _: Command) -> StoreUnavailable:
        return StoreUnavailable("the store does not answer; the same id again is safe")

    def answered(self, after_s: float) -> None:
        self._pipeline.answered(after_s)

    def shards_of(self, _: Master) -> Iterable[int]:
        return self._shards

    async def compare(self, shards: Iterable[int], ask: Ask) -> bool:
        return await self._pipeline.compare(shards, ask)
