"""Ghosts: sessions that the store believes to be here, and that are not."""

import logging
from contextlib import suppress

from relay.core.instance.notifier import Notifier
from relay.core.presence.membership import Membership
from relay.core.presence.sessions import Sessions
from relay.errors import RelayError
from relay.store.store import Store

log = logging.getLogger(__name__)

PAGE = 500  # mailboxes of a shard that are looked at together


class Ghosts:
    """A session that has left may be back in a store that has gone back in time: it would get mail that nobody reads,
    and keep others from their mailbox. Whoever is not here is told to leave."""

    def __init__(self, store: Store, sessions: Sessions, membership: Membership, notifier: Notifier) -> None:
        self._store = store
        self._sessions = sessions
        self._membership = membership
        self._notifier = notifier
        self._next = (0, "0")  # shard and cursor of the page that is looked at next

    async def disown(self, address: str, name: str) -> None:
        """Ends what the store has of a session, if that is not here."""
        if self._is_ghost(name) and await self._membership.leave(address, name, "unknown here"):
            log.warning("session_disowned", extra={"agent": address, "session": name})

    async def disown_all(self, address: str) -> None:
        """Those of one agent. If the store is away, it is told of them again."""
        registered: dict[str, str] = {}
        with suppress(RelayError):
            (registered,) = await self._store.presence.registered(self._store.keys.shard(address), [address])
        for name in registered:
            await self.disown(address, name)

    async def look(self) -> None:
        """Looks at the next page of what the store believes. Raises StoreUnavailable."""
        shard, cursor = self._next
        cursor = await self._look_at(shard, cursor)
        self._next = ((shard + 1) % self._store.keys.shards, "0") if cursor == "0" else (shard, cursor)

    async def look_at_all(self) -> None:
        """Looks at everything: the store was away, and may have gone back in time. Raises StoreUnavailable."""
        for shard in range(self._store.keys.shards):
            cursor = await self._look_at(shard, "0")
            while cursor != "0":
                cursor = await self._look_at(shard, cursor)

    async def _look_at(self, shard: int, cursor: str) -> str:
        following, by_address = await self._store.presence.sessions(shard, cursor, PAGE)
        for address, names in by_address.items():
            if any(map(self._is_ghost, names)):  # or it has just left, which a second look tells
                await self.disown_all(address)
        return following

    def _is_ghost(self, name: str) -> bool:
        return (
            self._sessions.is_name_of_ours(name)
            and self._sessions.get(name) is None
            and not self._notifier.is_awaited(("replaced", name))
            and not self._membership.is_leaving(name)
        )
