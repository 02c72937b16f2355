"""What the store is: its schema, shards and epoch, and whether it is as safe as the relay promises."""

import secrets
from dataclasses import dataclass

from relay.errors import ConfigurationError, StoreRefused
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
        self._config_is_hidden = False  # whether the server has refused to tell its settings

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
        """Asks the server what it does with memory and disk. One that hides its settings is taken to give `memory`."""
        memory, replication = await self._info("memory"), await self._info("replication")
        append_only, fsync = await self._config("appendonly"), await self._config("appendfsync")
        own = durability = "fsync" if append_only == "yes" and fsync == "always" else "memory"
        promised = self._settings.durability
        if promised == "replica" and int(replication.get("connected_slaves", 0)) > 0:
            durability = "replica"
        return Safety(durability, own, memory.get("maxmemory_policy", "noeviction") != "noeviction", promised)

    async def _info(self, section: str) -> dict[str, str]:
        text = (await self._line.command("INFO", section)).decode()
        return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)

    async def _config(self, name: str) -> str | None:
        if self._config_is_hidden:
            return None
        try:
            reply = await self._line.command("CONFIG", "GET", name)
        except StoreRefused:  # as managed servers do; asking again every few seconds would only fill the log
            self._config_is_hidden = True
            return None
        return reply[1].decode() if reply else None
