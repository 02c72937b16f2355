"""What one client sends: in its order checked, held to its rate, stored and answered."""

import asyncio
from typing import Any

import msgspec

from relay.answering import Answers
from relay.auth import Identity
from relay.errors import RelayError
from relay.metrics import Metrics
from relay.protocol import Message, names_of
from relay.sending import checked, not_granted, note_outcome, refusal
from relay.store.batches import Outcome
from relay.store.mailboxes import Draft
from relay.store.store import Store


class Sends:
    """Every message is answered once: accepted, duplicate or refused."""

    __slots__ = ("_address", "_answers", "_metrics", "_store", "_waiting")

    def __init__(self, address: str, store: Store, metrics: Metrics, answers: Answers) -> None:
        self._address = address
        self._store = store
        self._metrics = metrics
        self._answers = answers
        self._waiting: list[list[Message]] = []  # frames that wait for the rate limit, in order

    def send(self, sender: Identity, raws: list[msgspec.Raw]) -> None:
        """The messages of one frame."""
        self._answers.owe(len(raws))
        messages = []
        for raw in raws:
            try:
                messages.append(checked(raw, sender, self._store.settings.max_payload_bytes))
            except RelayError as error:
                self._refuse(error, **names_of(raw))
        if not messages:
            return
        self._waiting.append(messages)
        if len(self._waiting) == 1:
            self._spend_next()

    def _spend_next(self) -> None:
        self._store.rates.spend(self._address, len(self._waiting[0]), self._spent)

    def _spent(self, granted: int | None, retry_after_ms: int) -> None:
        """The rate limit has answered for the first frame in line; the next one asks only now, so order stays."""
        messages = self._waiting.pop(0)
        for n, message in enumerate(messages):
            if granted is not None and n < granted:
                self._accept(message)
            else:
                self._refuse(not_granted(granted, retry_after_ms), id=message.id, to=message.to)
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._spend_next)

    def _accept(self, message: Message) -> None:
        if message.request:
            lives_ms = self._store.mailboxes.lives_ms(message)
            self._store.tasks.open(self._address, message.id, message.to, lives_ms)
        self._store.mailboxes.accept(self._store.mailboxes.draft(self._address, message, self._answered))

    def _answered(self, draft: Draft, outcome: Outcome) -> None:
        error = refusal(draft, outcome)
        note_outcome(self._metrics, draft, outcome, error)
        if error is not None:
            self._answers.refuse(error, id=draft.id, to=draft.to)
            return
        # A blocked sender must not be able to tell, so it is answered like one whose message is stored.
        self._answers.accept(draft.id, is_duplicate=outcome[0] == b"duplicate")

    def _refuse(self, error: RelayError, **names: Any) -> None:
        """A message that never got to the store."""
        self._metrics.refused[error.code] += 1
        self._answers.refuse(error, **names)
