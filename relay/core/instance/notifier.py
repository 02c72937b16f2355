"""Notifier: lets calls wait for something to happen, and wakes them when it did."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

Event = tuple[str, ...]  # ("mail", address), ("task", requester, id) or ("replaced", session)


class Notifier:
    """Waiting for mail or for an answer needs no connection to the store."""

    def __init__(self) -> None:
        self._waiters: dict[Event, set[asyncio.Event]] = {}

    @contextmanager
    def waiting_for(self, *events: Event) -> Iterator[asyncio.Event]:
        """A flag that is set whenever one of these may have happened; who waits looks for itself and clears it."""
        flag = asyncio.Event()
        for event in events:
            self._waiters.setdefault(event, set()).add(flag)
        try:
            yield flag
        finally:
            for event in events:
                self._waiters[event].discard(flag)
                if not self._waiters[event]:
                    del self._waiters[event]

    def notify(self, event: Event) -> None:
        for flag in self._waiters.get(event, ()):
            flag.set()

    def is_awaited(self, event: Event) -> bool:
        return event in self._waiters

    def notify_all(self) -> None:
        for event in list(self._waiters):
            self.notify(event)
