"""Sessions of this instance: found by name and by address, and woken in turn."""

import itertools
from collections.abc import Iterator

from relay.core.session.session import Session


class Sessions:
    """The registry of local sessions. The store may still have an older state."""

    def __init__(self, instance: str, max_per_agent: int) -> None:
        self._instance = instance
        self._max_per_agent = max_per_agent
        self._numbers = itertools.count(1)
        self._by_name: dict[str, Session] = {}
        self._by_address: dict[str, dict[str, Session]] = {}  # by name, in the order in which they are woken

    def new_name(self) -> str:
        """A name for a new holder. It begins with the instance."""
        return f"{self._instance}.{next(self._numbers)}"

    def is_name_of_ours(self, name: str) -> bool:
        return name.partition(".")[0] == self._instance

    def add(self, session: Session) -> None:
        self._by_name[session.name] = session
        self._by_address.setdefault(session.address, {})[session.name] = session

    def remove(self, session: Session) -> bool:
        """False if it was not there any more."""
        if self._by_name.pop(session.name, None) is None:
            return False
        of_agent = self._by_address[session.address]
        del of_agent[session.name]
        if not of_agent:
            del self._by_address[session.address]
        return True

    def get(self, name: str) -> Session | None:
        return self._by_name.get(name)

    def of(self, address: str) -> list[Session]:
        """The sessions of an agent, the next one to be woken first."""
        return list(self._by_address.get(address, {}).values())

    def addresses(self) -> list[str]:
        """The agents that have sessions here."""
        return list(self._by_address)

    def has_too_many(self, address: str) -> bool:
        """Whether an agent has as many sessions here as it may."""
        return len(self._by_address.get(address, ())) >= self._max_per_agent

    def wake(self, address: str, *but: str, pushed: int | None = None) -> None:
        """Wakes one session of the agent, in turn. It wakes the next one if there is more.

        One whose credits are used up hears how many messages were `pushed` to it before."""
        of_agent = self._by_address.get(address, {})
        for name, session in of_agent.items():
            if name not in but and session.pump.wake(pushed):
                of_agent[name] = of_agent.pop(name)
                return

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._by_name.values()))

    def __len__(self) -> int:
        return len(self._by_name)
