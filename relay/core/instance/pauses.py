"""Pauses: which deliveries are paused, as far as this instance knows."""

from relay.core.instance.notifier import Notifier
from relay.core.presence.sessions import Sessions
from relay.store.agents.pauses import Pauses, is_paused


class PauseSwitch:
    """Stops and starts the pumps of sessions. Wakes announce pauses; the recheck finds the ones that were lost."""

    def __init__(self, pauses: Pauses, sessions: Sessions, notifier: Notifier) -> None:
        self._pauses = pauses
        self._sessions = sessions
        self._notifier = notifier
        self._names: set[str] = set()  # agents and tenants that are paused

    def stops(self, address: str) -> bool:
        """Whether nothing is delivered to this agent now."""
        return is_paused(address, self._names)

    def turn(self, name: str, on: bool) -> None:
        """An agent or a tenant is paused, or is not any more."""
        if on:
            self._names.add(name)
        else:
            self._names.discard(name)
        self._apply()

    async def look(self) -> None:
        """Compares with the store. Raises StoreUnavailable."""
        names = await self._pauses.names()
        if names != self._names:
            self._names = names
            self._apply()

    def _apply(self) -> None:
        for session in self._sessions:
            session.pump.pause(self.stops(session.address))
        self._notifier.notify_all()  # calls that wait for mail look again
