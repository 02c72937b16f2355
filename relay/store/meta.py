"""Meta: schema, shards and epoch of the store, and whether it is as safe as promised."""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from relay.errors import ConfigurationError, StoreRefused
from relay.settings import Settings
from relay.store import readable
from relay.store.keys import SCHEMA, Keys, may_share
from relay.store.redis.encoder import keyed_packet
from relay.store.redis.pipeline import CommandPipeline
from relay.store.redis.scripts import script
from relay.store.redis.servers.master import Master
from relay.store.witness import Regress, Witness

REGRESSED = "regressed:"  # how the fields of `meta` begin that tell of shards
LEVELS = ("memory", "fsync", "replica")


@dataclass(frozen=True, slots=True)
class Safety:
    """The durability and eviction policy that the server really has."""

    durability: str  # the level it is seen to give
    evicts: bool
    promised: str | None
    warnings: tuple[str, ...] = ()  # what can be used, and should be better

    @property
    def reason(self) -> str | None:
        """Why the store must not be used, or None."""
        if self.evicts:
            return "maxmemory-policy is not noeviction: Redis would delete mailboxes"
        if self.promised and LEVELS.index(self.promised) > LEVELS.index(self.durability):
            return f"durability {self.promised} is promised, but the server gives {self.durability}"
        return None

    @property
    def level(self) -> str:
        return self.promised or self.durability


class Meta:
    def __init__(self, pipeline: CommandPipeline, keys: Keys, settings: Settings, witness: Witness) -> None:
        self._pipeline = pipeline
        self._witness = witness
        self._keys = keys
        self._settings = settings
        self.epoch = ""
        self._epochs: list[str] = []  # each that was ever known, oldest first
        self._told: bytes | None = (
            None  # how often the store was told of a shard that has gone back, as far as is known
        )
        self.regresses: dict[int, Regress] = {}  # the last of each shard that has gone back in time
        self.newly_regressed: dict[int, Regress] = {}  # those that the last look has found
        self._config_is_hidden = False  # whether the server has refused to tell its settings

    async def check(self) -> bool:
        """Reads the facts of the store, or writes them into an empty one. True if data were lost since the last look.

        Raises ConfigurationError if the data are of a schema that is not next to this one, or of another number of
        shards.
        """
        await self._tell()
        key = self._keys.meta
        fresh = {"schema": str(SCHEMA), "shards": str(self._keys.shards), "epoch": secrets.token_hex(8)}
        *values, told = await self._pipeline.command("HMGET", key, *fresh, "regresses")
        if None in values:  # only now: a full server would refuse to write what it has
            for field, value in fresh.items():
                await self._pipeline.command("HSETNX", key, field, value)
            *values, told = await self._pipeline.command("HMGET", key, *fresh, "regresses")
        schema, shards, epoch = map(readable.shown, values)
        await self._agree_on(schema)
        if shards != str(self._keys.shards):
            raise ConfigurationError(
                f"RELAY_SHARDS: the store was made with {shards} shards, not {self._keys.shards}; that cannot change"
            )
        return (epoch, told) != (self.epoch, self._told) and await self._learn(epoch, told)

    async def _learn(self, epoch: str, told: bytes | None) -> bool:
        """False if another caller has learned it meanwhile."""
        regresses = await self.read_regresses()
        if (epoch, told) == (self.epoch, self._told):
            return False
        known, self.regresses = self.regresses, regresses
        self._witness.learn(regresses)
        self.newly_regressed = {
            shard: regress
            for shard, regress in regresses.items()
            if self.epoch and (shard not in known or known[shard].times != regress.times)
        }
        self._told = told
        if epoch == self.epoch:
            return bool(self.newly_regressed)
        if self.epoch and not self.newly_regressed:
            self._witness.forget_all()  # everything is gone, and that was noticed here
        self.epoch = epoch
        self._epochs.append(epoch)
        return True

    async def _tell(self) -> None:
        """Says in the store what the witness has found."""
        told = dict(self._witness.found)
        if not told:
            return
        pairs = [part for shard, found in told.items() for part in (f"{REGRESSED}{shard}", msgspec.json.encode(found))]
        packet = keyed_packet(script("tell"), self._keys.meta, " ".join(self._epochs), secrets.token_hex(8), *pairs)
        await self._pipeline.reply(packet, needs_replicas=True)
        self._witness.forget(told)

    async def read_regresses(self) -> dict[int, Regress]:
        """Of each shard that has gone back in time, the last time."""
        key = self._keys.meta
        fields = readable.pairs(await self._pipeline.command("HGETALL", key))
        told = [(name, value) for name, value in fields if name.startswith(REGRESSED.encode())]
        return dict(readable.readable(key, told, _read_regress))

    async def _agree_on(self, schema: str) -> None:
        if not may_share(schema):
            raise ConfigurationError(
                f"the store has schema {schema}, and this relay is for {SCHEMA}: they may be one apart, no more"
            )
        if int(schema) < SCHEMA:
            await self._pipeline.command("HSET", self._keys.meta, "schema", SCHEMA)

    async def safety(self) -> Safety:
        """Asks every master what it does with memory and disk. One that hides its settings is taken to give `memory`.

        Raises ConfigurationError if there is one server and it is a node of a Cluster, StoreUnavailable if nobody
        answers. A master that is away is left out: what it has cannot be used now.
        """
        infos = await self._pipeline.info_of_each("memory", "replication", "cluster")
        if not self._pipeline.is_cluster and any(info.get("cluster_enabled") == "1" for info in infos.values()):
            raise ConfigurationError(
                "RELAY_REDIS_URL: the server is a node of a cluster and has only a part of the keys; "
                "use redis+cluster://host:port,…"
            )
        configs = await self._configs()
        levels = [self._level(info, configs.get(master, {}), master.replicas_asked()) for master, info in infos.items()]
        evicts = any(info.get("maxmemory_policy", "noeviction") != "noeviction" for info in infos.values())
        warnings = {risk: None for info in infos.values() for risk in _risks(info)}
        return Safety(min(levels, key=LEVELS.index), evicts, self._settings.durability, tuple(warnings))

    def _level(self, info: dict[str, str], config: dict[str, str], replicas_asked: int) -> str:
        """How durably a master stores."""
        if self._settings.durability == "replica" and _replicas(info) >= replicas_asked:
            return "replica"
        return "fsync" if (config.get("appendonly"), config.get("appendfsync")) == ("yes", "always") else "memory"

    async def _configs(self) -> dict[Master, dict[str, str]]:
        if self._config_is_hidden:
            return {}
        replies = await self._pipeline.of_each("CONFIG", "GET", "append*")
        # As managed servers do; asking again every few seconds would only fill the log.
        self._config_is_hidden = any(isinstance(reply, StoreRefused) for reply in replies.values())
        return {
            master: {readable.shown(name): readable.shown(value) for name, value in readable.pairs(reply)}
            for master, reply in replies.items()
            if not isinstance(reply, Exception)
        }


def _read_regress(record: tuple[bytes, bytes]) -> tuple[int, Regress]:
    return int(record[0].removeprefix(REGRESSED.encode())), msgspec.json.decode(record[1], type=Regress)


def _replicas(info: dict[str, str]) -> int:
    """How many replicas are linked and have caught up."""
    named = (f"slave{number}" for number in range(int(info.get("connected_slaves", 0))))
    return sum("state=online" in info.get(name, "") for name in named)


def _risks(info: dict[str, str]) -> Iterator[str]:
    if int(info.get("connected_slaves", 0)) > 0 and "min_slaves_good_slaves" not in info:
        yield "min-replicas-to-write is not set: a master that is being replaced takes writes that will be lost"
