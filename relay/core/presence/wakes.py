"""Wakes: dispatches what the store's scripts publish to the sessions it concerns."""

from contextlib import suppress

from relay.core.instance.background import Background
from relay.core.instance.notifier import Notifier
from relay.core.instance.pauses import PauseSwitch
from relay.core.presence.ghosts import Ghosts
from relay.core.presence.sessions import Sessions
from relay.core.session.key_check import KeyCheck
from relay.errors import RelayError
from relay.store.readable import whole
from relay.store.store import Store
from relay.store.wakes import OutboxPlace, PushedReceipts, Wakes


class WakeDispatcher:
    """A wake is a hint: the woken session checks its mailbox itself."""

    def __init__(
        self,
        store: Store,
        sessions: Sessions,
        ghosts: Ghosts,
        notifier: Notifier,
        keys: KeyCheck,
        pauses: PauseSwitch,
        background: Background,
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._ghosts = ghosts
        self._notifier = notifier
        self._keys = keys
        self._pauses = pauses
        self._background = background
        self._fetching: set[OutboxPlace] = set()

    def dispatch(self, wakes: Wakes) -> None:
        for push in wakes.pushes:
            session = self._sessions.get(push.session)
            if session is not None:
                session.pump.pushed(push)
            else:
                self._background.spawn(self._ghosts.disown(push.address, push.session))
        for receipts in wakes.receipts:
            self._receipts(receipts)
        for line in wakes.lines:
            match line:
                case ["mail", address, "", pushed]:
                    self._mail(address, [], whole(pushed))
                case ["mail", address, *but]:
                    self._mail(address, but)
                case ["receipts", address]:
                    for session in self._sessions.of(address):
                        session.read_receipts()
                case [("lost" | "overdue") as word, name, entry]:
                    self._lost(name, entry, others_first=word == "overdue")
                case ["replaced", name]:
                    self._replaced(name)
                case ["removed", name]:
                    self._removed(name)
                case ["key", address]:
                    self._background.spawn(self._keys.check(self._sessions.of(address)))
                case [("paused" | "resumed") as word, name]:
                    self._pauses.turn(name, word == "paused")
                case ["probe", token]:
                    self._background.spawn(self._answer(token))
                case ["left", name, shard, entry]:
                    self._left(name, (whole(shard), entry))
                case ["task", requester, task_id]:
                    self._notifier.notify(("task", requester, task_id))

    async def _answer(self, token: str) -> None:
        """The observer wants to know whether this instance hears."""
        with suppress(RelayError):
            await self._store.holds.answer_probe(token)

    def _mail(self, address: str, but: list[str], pushed: int | None = None) -> None:
        self._sessions.wake(address, *but, pushed=pushed)
        self._notifier.notify(("mail", address))
        if not self._sessions.of(address) and not self._notifier.is_awaited(("mail", address)):
            self._background.spawn(self._ghosts.disown_all(address))

    def _lost(self, name: str, entry: str, others_first: bool) -> None:
        if session := self._sessions.get(name):
            session.pump.lose(entry, others_first)

    def _left(self, name: str, place: OutboxPlace) -> None:
        """Receipts are still in an outbox: the push was lost, or the sender has not confirmed them."""
        session = self._sessions.get(name)
        if place not in self._fetching and (session is None or not session.receipts.has(place)):
            self._fetching.add(place)  # at once: workers may remind us twice
            self._background.spawn(self._fetch_receipts(name, place))

    async def _fetch_receipts(self, name: str, place: OutboxPlace) -> None:
        try:
            with suppress(RelayError):  # a worker finds it again
                if receipts := await self._store.receipts.in_outbox(name, *place):
                    self._receipts(receipts)
        finally:
            self._fetching.discard(place)

    def _receipts(self, receipts: PushedReceipts) -> None:
        session = self._sessions.get(receipts.session)
        if session is None or not session.push_receipts(receipts):
            self._store.receipts.hand_over(receipts)

    def _replaced(self, name: str) -> None:
        if session := self._sessions.get(name):
            session.close("replaced")
        self._notifier.notify(("replaced", name))

    def _removed(self, name: str) -> None:
        """Its agent was deleted. Its key is no longer valid; a token still is, and may register the agent again."""
        session = self._sessions.get(name)
        if session is not None and session.identity.key is not None:
            session.close("unauthorized")
        elif session is not None:
            session.close("replaced")
        self._notifier.notify(("replaced", name))
