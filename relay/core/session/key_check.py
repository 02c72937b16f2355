"""Key check: closes a session when its key no longer belongs to its agent."""

from contextlib import suppress

from relay.core.session.session import Session
from relay.errors import RelayError
from relay.store.agents.agents import Agents


class KeyCheck:
    def __init__(self, agents: Agents) -> None:
        self._agents = agents

    async def check(self, sessions: list[Session]) -> None:
        """Ends sessions whose key is no longer valid. If the store is away, the next recheck does."""
        with suppress(RelayError):
            for session in sessions:
                key = session.identity.key
                if key is not None and not await self._agents.is_key_of(key, session.address):
                    session.close("unauthorized")

    async def check_shard(self, shard: int, sessions: list[Session]) -> None:
        """Ends sessions of a shard whose key is no longer valid, in case a wake was lost. Raises StoreUnavailable."""
        keyed = [session for session in sessions if session.identity.key is not None]
        if keyed:
            keys = await self._agents.keys_of(shard, [session.address for session in keyed])
            await self.check([session for session, key in zip(keyed, keys, strict=True) if key != session.identity.key])
