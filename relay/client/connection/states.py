"""States of the connection, and the relay's close codes in words."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

CLOSE_CODES = {
    1009: "a frame was over the relay's size limit",
    4000: "the relay's store is away",
    4001: "the instance is stopping",
    4008: "this client read too slowly",
    4010: "this client was silent for too long",
    4029: "the relay has too many connections",
    4501: "the relay does not take this token or key",
    4503: "this client broke the protocol",
    4509: "a newer session of this agent has taken over",
    4511: "the token has expired",
}
COME_BACK_BELOW = 4_500  # from here on the relay does not want the same again


def in_words(code: int | None) -> str:
    """A close code as a person would say it."""
    if code is None or code == 1006:
        return "the connection was lost"
    return CLOSE_CODES.get(code, f"the connection was closed with code {code}")


@dataclass(frozen=True, slots=True)
class Connecting:
    """There is no session; the next attempt is under way. `why` is what ended the last session.

    >>> Connecting("ws://a:8080", 1).attempt
    1
    """

    url: str
    attempt: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class Live:
    """There is a session: messages flow.

    >>> async for state in alice.states():
    ...     print(type(state).__name__)
    ...     break
    Live
    """

    url: str
    instance: str


@dataclass(frozen=True, slots=True)
class ReplacedBy:
    """A newer session of the same agent has the mailbox; this one does not come back.

    >>> ReplacedBy().reason
    'a newer session of this agent has taken over'
    """

    reason: str = CLOSE_CODES[4509]


@dataclass(frozen=True, slots=True)
class Ended:
    """The connection has ended for good; `reason` says why.

    >>> Ended("the agent was closed").reason
    'the agent was closed'
    """

    reason: str
    code: int | None = None


State = Connecting | Live | ReplacedBy | Ended


class StateFeed:
    """The state of a connection, for its watchers."""

    def __init__(self, first: State) -> None:
        self.now = first
        self._watchers: list[asyncio.Queue[State]] = []

    def change(self, state: State) -> None:
        self.now = state
        for watcher in self._watchers:
            watcher.put_nowait(state)

    async def follow(self) -> AsyncIterator[State]:
        """The state now, and every change, to the last."""
        watcher: asyncio.Queue[State] = asyncio.Queue()
        watcher.put_nowait(self.now)
        self._watchers.append(watcher)
        try:
            while True:
                state = await watcher.get()
                yield state
                if isinstance(state, Ended | ReplacedBy):
                    return
        finally:
            self._watchers.remove(watcher)
