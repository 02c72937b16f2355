"""Recheck: finds mail, receipts and replacing sessions whose wake was lost."""

import asyncio

from relay.core.presence.membership import Membership
from relay.core.presence.sessions import Sessions
from relay.core.session.key_check import KeyCheck
from relay.core.session.session import Session
from relay.store.store import Store


class Recheck:
    """Wakes may be lost, so every `recheck_s` it asks the store what the sessions here should know."""

    def __init__(self, store: Store, sessions: Sessions, membership: Membership, keys: KeyCheck) -> None:
        self._store = store
        self._sessions = sessions
        self._membership = membership
        self._keys = keys

    async def look(self) -> None:
        """Raises StoreUnavailable."""
        by_shard: dict[int, dict[str, list[Session]]] = {}
        for address in self._sessions.addresses():
            # One that joins later is not in what the store says now.
            joined = [session for session in self._sessions.of(address) if session.joined]
            if joined:
                by_shard.setdefault(self._store.keys.shard(address), {})[address] = joined
        await asyncio.gather(*(self._look_in(shard, by_address) for shard, by_address in by_shard.items()))

    async def _look_in(self, shard: int, by_address: dict[str, list[Session]]) -> None:
        addresses = list(by_address)
        await self._keys.check_shard(shard, [session for sessions in by_address.values() for session in sessions])
        registered, waiting, receipts, pushed = await asyncio.gather(
            self._store.presence.registered(shard, addresses),
            self._store.taking.waiting(shard, addresses),
            self._store.receipts.waiting(addresses),
            self._store.taking.pushed(shard, addresses),
        )
        found = zip(addresses, registered, waiting, receipts, pushed, strict=True)
        for address, modes, has_mail, has_receipts, (pushed_to, total) in found:
            if not (has_mail or has_receipts) and all(session.name in modes for session in by_address[address]):
                continue  # most are idle
            present = [session for session in by_address[address] if self._is_served(session)]
            known = [session for session in present if session.name in modes]
            by_name = {session.name: session for session in known}
            if has_mail and pushed_to in by_name:
                by_name[pushed_to].pump.compare(total)
            elif has_mail:
                look_for_mail(known)
            if has_receipts:
                for session in known:
                    session.read_receipts()
            for session in present:
                if session.name not in modes and self._is_served(session):
                    await self._missing(session, modes)

    def _is_served(self, session: Session) -> bool:
        return not session.pump.is_closing and self._sessions.get(session.name) is session

    async def _missing(self, session: Session, modes: dict[str, str]) -> None:
        """The store does not know it: somebody took its place, or it was forgotten."""
        if session.mode == "exclusive" and "exclusive" in modes.values():
            session.close("replaced")
        else:
            await self._membership.rejoin(session)


def look_for_mail(sessions: list[Session]) -> None:
    """One fetches for all of an agent's, if its window is not full; full ones are compared with the store."""
    is_asked = False
    for session in sessions:
        if not is_asked or session.pump.is_full():
            asked = session.pump.look()
            is_asked = is_asked or (asked and not session.pump.is_full())
