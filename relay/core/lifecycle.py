"""Each step of a message's life, counted, logged and traced the same way for every transport."""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec
from msgspec import Struct

from relay.errors import RelayError
from relay.protocol.message import Message
from relay.store.mailbox.outcomes import AcceptOutcome
from relay.store.record.body import without_payload
from relay.store.record.draft import Draft
from relay.store.record.head import Head
from relay.store.record.taken import Taken, came_at_ms
from relay.store.store import Store
from relay.telemetry import tracing
from relay.telemetry.logs import LIFE
from relay.telemetry.metrics import Metrics
from relay.telemetry.tracing import NS_PER_MS, context_in

MOST_FOLLOWED = 100_000  # messages whose names are remembered; of those that were taken before, only the entry is told

OnAccepted = Callable[[Draft, AcceptOutcome, RelayError | None], None]


class Followed(Struct, gc=False):
    """The fields of a message that logs and traces may show."""

    id: str
    headers: dict[str, str] | None = None
    taken_ms: int = 0


class _Traced(Struct):
    """All that is read of a body."""

    headers: dict[str, str] | None = None


_followed: OrderedDict[tuple[str, str], Followed] = OrderedDict()  # address, entry -> what is held
_decode = msgspec.json.Decoder(_Traced).decode


def is_followed() -> bool:
    """Whether anybody wants to know of single messages: only then their names are looked for."""
    return tracing.spans is not None or LIFE.isEnabledFor(logging.DEBUG)


def traced(message: Message, answer: OnAccepted) -> OnAccepted:
    """Adds a span for the time to store this message, if it is traced."""
    spans = tracing.spans
    if spans is None or not message.headers or not (context := context_in(message.headers)):
        return answer
    began_ns = time.time_ns()

    def answered(draft: Draft, outcome: AcceptOutcome, error: RelayError | None) -> None:
        names = {"destination__name": message.to, "message__id": message.id}
        outcome_word = error.code if error else outcome.word
        spans.record("relay accept", context, began_ns, time.time_ns(), **names, relay__outcome=outcome_word)
        answer(draft, outcome, error)

    return answered


def note_taken(metrics: Metrics, address: str, rows: Collection[Taken], now_ms: int) -> None:
    """Messages were given to a session or a puller."""
    metrics.taken += len(rows)
    metrics.taken_again += sum(row.attempt > 1 for row in rows)
    metrics.accepted_to_taken.observe_all([(now_ms - came_at_ms(row.entry)) / 1_000 for row in rows])
    if is_followed():
        for row in rows:
            message = _follow(address, row.entry, row.head, row.body, now_ms)
            LIFE.debug("taken", extra=_names(address, row.entry, message) | {"attempt": row.attempt})
            began_ms = came_at_ms(row.entry)
            _record("relay wait", address, message, began_ms, now_ms, relay__attempt=row.attempt)


def note_settled(
    metrics: Metrics,
    how: str,
    address: str,
    entries: Collection[str],
    refused: Mapping[str, str],
    held_s: Iterable[float],
) -> None:
    """A holder settled entries; some may be refused. `held_s` has the hold times of the acked ones."""
    metrics.settled[how] += len(entries) - len(refused)
    metrics.taken_to_acked.observe_all(held_s)
    if is_followed():
        for entry in entries:
            message = _followed.get((address, entry))
            LIFE.debug(refused.get(entry, how), extra=_names(address, entry, message))
            if message is not None and how != "touch" and entry not in refused:
                del _followed[address, entry]
                now_ms = time.time_ns() // NS_PER_MS
                _record("relay hold", address, message, message.taken_ms or now_ms, now_ms, relay__settled=how)


async def recall(store: Store, address: str, entries: Iterable[str]) -> None:
    """Learns the names of messages that were leased through another instance, before they are settled here."""
    unknown = [entry for entry in entries if (address, entry) not in _followed]
    for entry, (head, body) in (await store.lookup.stored(address, unknown)).items():
        _follow(address, entry, head, body, 0)


def _follow(address: str, entry: str, head: str, body: bytes, taken_ms: int) -> Followed:
    names = Head.parse(head)
    message = Followed(names.id, _decode(without_payload(body, names.bytes)).headers, taken_ms)
    _followed[address, entry] = message
    if len(_followed) > MOST_FOLLOWED:
        _followed.popitem(last=False)
    return message


def _names(address: str, entry: str, message: Followed | None) -> dict[str, object]:
    known: dict[str, object] = {"agent": address, "entry": entry}
    return known if message is None else known | {"id": message.id}


def _record(name: str, address: str, message: Followed, began_ms: int, ended_ms: int, **attributes: object) -> None:
    if tracing.spans is not None and message.headers and (context := context_in(message.headers)):
        names = {"destination__name": address, "message__id": message.id}
        began_ns, ended_ns = began_ms * NS_PER_MS, ended_ms * NS_PER_MS
        tracing.spans.record(name, context, began_ns, ended_ns, **names, **attributes)
