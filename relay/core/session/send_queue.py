"""Messages from one client: checked, rate-limited, stored and answered, in order."""

from functools import partial
from typing import Any

import msgspec

from relay.core.intake import not_granted, parse_for_tenant, submit
from relay.core.session.agent_link import AgentLink
from relay.core.session.answer_buffer import AnswerBuffer
from relay.core.session.spending import Spending
from relay.errors import Forbidden, RelayError
from relay.protocol.message import Message
from relay.protocol.unpacking import names_of
from relay.store.mailbox.outcomes import AcceptOutcome, Duplicate
from relay.store.record.draft import Draft
from relay.store.store import Store
from relay.telemetry.metrics import Metrics


class SendQueue:
    """Every message is answered once: accepted, duplicate or refused."""

    __slots__ = ("_answers", "_link", "_metrics", "_session", "_spending", "_store")

    def __init__(
        self, session: str, link: AgentLink, store: Store, metrics: Metrics, answers: AnswerBuffer, spending: Spending
    ) -> None:
        self._session = session
        self._link = link
        self._store = store
        self._metrics = metrics
        self._answers = answers
        self._spending = spending

    def send(self, raws: list[msgspec.Raw]) -> None:
        """The messages of one frame."""
        self._answers.expect(len(raws))
        if self._store.memory.is_short:
            self._refuse_all(self._store.memory.shortage(), raws)
            return
        try:
            self._link.identity.require("send")
        except Forbidden as error:
            self._refuse_all(error, raws)
            return
        messages, tenant, most_bytes = [], self._link.tenant, self._store.settings.max_payload_bytes
        for raw in raws:
            try:
                messages.append(parse_for_tenant(tenant, raw, most_bytes))
            except RelayError as error:
                self._refuse(error, **({} if "id" in error.details else names_of(raw)))
        if not messages:
            return
        self._spending.spend(len(messages), partial(self._spent, messages))

    def _spent(self, messages: list[Message], granted: int | None, retry_after_ms: int) -> None:
        allowed = messages[: granted or 0]
        submit(self._store, self._metrics, self._link.address, allowed, self._answered, via=self._session)
        for message in messages[len(allowed) :]:
            self._refuse(not_granted(granted, retry_after_ms), id=message.id, to=message.to)

    def _answered(self, draft: Draft, outcome: AcceptOutcome, error: RelayError | None) -> None:
        if error is not None:
            self._answers.refuse(error, id=draft.id, to=draft.to)
        elif isinstance(outcome, Duplicate):
            self._answers.accept_again(draft.id, _end(draft, outcome))
        else:
            # A blocked sender must not be able to tell, so it is answered like one whose message is stored.
            self._answers.accept(draft.id)

    def _refuse_all(self, error: RelayError, raws: list[msgspec.Raw]) -> None:
        for raw in raws:
            self._refuse(error, **names_of(raw))

    def _refuse(self, error: RelayError, **names: Any) -> None:
        """A message that never got to the store."""
        self._metrics.refused[error.code] += 1
        self._answers.refuse(error, **names)


def _end(draft: Draft, found: Duplicate) -> dict[str, Any] | None:
    """How a message ended, in the words of receipts: its own may have been lost, or is on its way."""
    if not found.ended:
        return None
    state = "delivered" if found.ended == "acked" else found.ended
    return {"id": draft.id, "to": draft.to, "state": state, "attempt": found.attempt}
