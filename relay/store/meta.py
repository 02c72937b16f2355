"""What the store is: its schema, shards and epoch, and whether it is as safe as the relay promises."""

import secrets
from dataclasses import dataclass

from relay.errors import ConfigurationError
from relay.settings import Settings
from relay.store.batches import Line
from relay.store.keys import SCHEMA, Keys

LEVELS = ("memory", "fsync", "replica")


@dataclass(frozen=True, slots=True)
class Safety:
    """What the server really does."""

    durability: str  # the level it is seen to give
    without_replica: str  # and what is left of it while no replica answers
    evicts: bool
    promised: str | None

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
    def __init__(self, line: Line, keys: Keys, settings: Settings) -> None:
        self._line = line
        self._keys = keys
        self._settings = settings
        self.epoch = ""

    async def check(self) -> bool:
        """Reads, or writes into an empty store, what it is. True if the epoch is another than before.

        Raises ConfigurationError if the data were made with another schema or number of shards.
        """
        key = self._keys.meta
        fresh = {"schema": SCHEMA, "shards": str(self._keys.shards), "epoch": secrets.token_hex(8)}
        for field, value in fresh.items():
            await self._line.command("HSETNX", key, field, value)
        values: list[bytes] = await self._line.command("HMGET", key, *fresh)
        schema, shards, epoch = (value.decode() for value in values)
        if schema != SCHEMA:
            raise ConfigurationError(f"the store has schema {schema}, this relay needs {SCHEMA}")
        if int(shards) != self._keys.shards:
            raise ConfigurationError(
                f"RELAY_SHARDS: the store was made with {shards} shards, not {self._keys.shards}; that cannot change"
            )
        changed = epoch != self.epoch
        self.epoch = epoch
        return changed

    async def safety(self) -> Safety:
        """Asks the server what it does with memory and disk."""
        policy = await self._config("maxmemory-policy")
        append_only = await self._config("appendonly")
        fsync = await self._config("appendfsync")
        info = (await self._line.command("INFO", "replication")).decode()
        replicas = next((int(line[17:]) for line in info.splitlines() if line.startswith("connected_slaves:")), 0)
        own = durability = "fsync" if append_only == "yes" and fsync == "always" else "memory"
        promised = self._settings.durability
        if promised == "replica" and replicas > 0:
            durability = "replica"
        return Safety(durability, own, policy not in ("noeviction", None), promised)

    async def _config(self, name: str) -> str | None:
        reply = await self._line.command("CONFIG", "GET", name)
        return reply[1].decode() if reply else None
