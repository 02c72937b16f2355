"""Intake: the rules that every incoming message must pass, from any entry point."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import msgspec

from relay.auth import Identity
from relay.core.lifecycle import OnAccepted, traced
from relay.errors import (
    Forbidden,
    LockLost,
    NotFound,
    QueueFull,
    RateLimited,
    RelayError,
    StoreUnavailable,
    TooLarge,
    UnknownAgent,
)
from relay.protocol.address import tenant_of
from relay.protocol.message import Message, parse_message
from relay.settings import Settings
from relay.store.agents.rates import MESSAGE
from relay.store.callbacks import answer_to
from relay.store.mailbox.outcomes import AcceptOutcome, Blocked, Duplicate, Full, Rationed, Stored, Unavailable, Unknown
from relay.store.mailbox.settle import MAX_PARTS, UNCONFIRMED
from relay.store.record.draft import Draft
from relay.store.store import Store
from relay.telemetry import tracing
from relay.telemetry.logs import LIFE
from relay.telemetry.metrics import Metrics

OFFLINE_RETRY_MS, ONLINE_RETRY_MS = 30_000, 1_000  # when a mailbox has no pace yet


def checked(raw: msgspec.Raw, sender: Identity, max_payload_bytes: int) -> Message:
    """A message that may be sent. Raises Malformed, TooLarge or Forbidden."""
    sender.require("send")
    return parse_for_tenant(sender.tenant, raw, max_payload_bytes)


def parse_for_tenant(tenant: str, raw: msgspec.Raw, max_payload_bytes: int) -> Message:
    """A message of one who may send in this tenant. Raises Malformed, TooLarge or Forbidden."""
    message = parse_message(raw, tenant, max_payload_bytes)
    if tenant_of(message.to) != tenant:
        raise Forbidden("the recipient is of another tenant")
    return message


def rate_limited(retry_after_ms: int) -> RateLimited:
    return RateLimited("too much at once", retry_after_ms=max(1, retry_after_ms))


def not_granted(granted: int | None, retry_after_ms: int) -> RelayError:
    """Why something may not be said now: the rate limit, or a store that cannot tell."""
    return StoreUnavailable("the store does not answer") if granted is None else rate_limited(retry_after_ms)


async def spend(store: Store, sender: str, count: int, price: int = MESSAGE) -> tuple[int | None, int]:
    """How many of these the sender may do now, and in how many ms more; None if the store is away."""

    def ask(answer: Callable[[tuple[int | None, int]], None]) -> None:
        store.rates.spend(sender, count, lambda granted, wait_ms: answer((granted, wait_ms)), price)

    return await answer_to(ask)


async def pay(store: Store, caller: str, price: int) -> None:
    """Spends for one thing. Raises RateLimited or StoreUnavailable."""
    granted, retry_after_ms = await spend(store, caller, 1, price)
    if not granted:
        raise not_granted(granted, retry_after_ms)


def refusal(draft: Draft, outcome: AcceptOutcome) -> RelayError | None:
    """Why the store did not take a message; None if it did, or has it already."""
    match outcome:
        case Stored() | Duplicate() | Blocked():
            return None
        case Full():
            return _queue_full(outcome)
        case Rationed():
            return _rationed(draft, outcome)
        case Unknown():
            return UnknownAgent(f"{draft.to} is not registered")
        case Unavailable():
            return StoreUnavailable(outcome.message)


def _queue_full(full: Full) -> QueueFull:
    """With when to try again: from the pace at which the mailbox drains."""
    usual_ms = ONLINE_RETRY_MS if full.is_online else OFFLINE_RETRY_MS
    retry_after_ms = full.pace_ms if full.pace_ms >= 0 and full.is_online else usual_ms
    return QueueFull(
        "the recipient's mailbox is full",
        retry_after_ms=max(10, min(retry_after_ms, OFFLINE_RETRY_MS)),
        depth=full.depth,
        limit=full.max_messages,
        bytes=full.bytes,
        bytes_limit=full.max_bytes,
    )


def _rationed(draft: Draft, rationed: Rationed) -> RateLimited:
    """A sender, or its tenant, has begun too much that the store must remember."""
    message = (
        "too many threads were begun lately; go on with one, or leave `thread` out",
        f"nobody uses {draft.to}, and you have written to too many such addresses lately",
        f"nobody uses {draft.to}, and its tenant has too much mail for such addresses",
    )[rationed.ration - 1]
    return RateLimited(message, retry_after_ms=rationed.retry_after_ms)


def maybe_settled() -> StoreUnavailable:
    """What a holder is told when nobody can promise the outcome."""
    return StoreUnavailable("it may or may not be settled; the same again is safe")


def not_held(code: str) -> RelayError:
    """Why an entry could not be settled, from the word of the script."""
    if code == "not_found":
        return NotFound("no such entry")
    if code == UNCONFIRMED:
        return maybe_settled()
    return LockLost("somebody else holds the entry, or nobody does")


def no_more_parts(word: str, settings: Settings) -> RelayError:
    """Why a part of a reply was not kept, from the word of the script. The last answer is still taken."""
    if word == "outbox_full":
        return QueueFull("too many answers wait for their way to other mailboxes", retry_after_ms=ONLINE_RETRY_MS)
    return TooLarge(
        f"a reply has at most {MAX_PARTS} parts and so many bytes; end it with its last answer",
        max=max(settings.reply_max_bytes, settings.max_payload_bytes),
    )


# -- the one way in


def submit(
    store: Store,
    metrics: Metrics,
    sender: str,
    messages: Iterable[Message],
    answer: OnAccepted,
    *,
    via: str = "",
    to_task_only: bool = False,
) -> None:
    """Submits checked and charged messages to their mailboxes. `answer` is called once for each, with the outcome.

    `via` is the session that sent them, which is the first to get their receipts.
    A reply to a request that is `to_task_only` is read from its task, and goes to no mailbox.
    """
    accepting, accepted = store.accepting, partial(_accepted, store, metrics, answer)
    for message in messages:
        if tracing.spans is not None:
            accepted = partial(_accepted, store, metrics, traced(message, answer))
        accepting.accept(accepting.draft(sender, message, accepted, via=via, reply_to_task_only=to_task_only))


def _accepted(store: Store, metrics: Metrics, answer: OnAccepted, draft: Draft, outcome: AcceptOutcome) -> None:
    """Opens the task of a request that is stored, without which it is not accepted; a refused one has none."""
    error = refusal(draft, outcome)
    if draft.task_lives_ms and error is None:
        opened = partial(_opened, metrics, answer, draft, outcome)
        store.tasks.open(draft.sender, draft.id, draft.to, draft.task_lives_ms, thread=draft.thread, opened=opened)
    else:
        _tell(metrics, answer, draft, outcome, error)


def _opened(metrics: Metrics, answer: OnAccepted, draft: Draft, outcome: AcceptOutcome, well: bool) -> None:
    told = outcome if well else Unavailable("its task could not be kept; the same id again is safe")
    _tell(metrics, answer, draft, told, refusal(draft, told))


def _tell(metrics: Metrics, answer: OnAccepted, draft: Draft, outcome: AcceptOutcome, error: RelayError | None) -> None:
    """Counts and logs the outcome of a message, and tells whoever sent it."""
    if LIFE.isEnabledFor(logging.DEBUG):
        step = error.code if error else outcome.word
        LIFE.debug(step, extra={"sender": draft.sender, "to": draft.to, "id": draft.id})
    if error is not None:
        metrics.refused[error.code] += 1
    elif isinstance(outcome, Stored):
        metrics.accepted += 1
    elif isinstance(outcome, Duplicate):
        metrics.duplicate += 1
    answer(draft, outcome, error)


# -- for those who wait


@dataclass(frozen=True, slots=True)
class SendResult:
    """A message that is or was in the mailbox. The `seq` of a duplicate is unknown."""

    id: str
    duplicate: bool
    state: str  # queued, or how a duplicate has ended
    seq: int | None


async def submit_and_wait(
    store: Store, metrics: Metrics, sender: str, message: Message, *, to_task_only: bool
) -> tuple[AcceptOutcome, RelayError | None]:
    """The outcome of a message, and the reason if it was refused."""

    def ask(done: Callable[[tuple[AcceptOutcome, RelayError | None]], None]) -> None:
        def answer(_: Draft, outcome: AcceptOutcome, error: RelayError | None) -> None:
            done((outcome, error))

        submit(store, metrics, sender, [message], answer, to_task_only=to_task_only)

    return await answer_to(ask)


async def send_one(store: Store, metrics: Metrics, sender: Identity, message: Message) -> SendResult:
    """Raises whatever the message is refused with."""
    (result,) = await send_all(store, metrics, sender, [message])
    if isinstance(result, RelayError):
        raise result
    return result


async def send_all(
    store: Store, metrics: Metrics, sender: Identity, messages: list[Message]
) -> list[SendResult | RelayError]:
    """Sends messages and waits for every answer, in their order."""
    if store.memory.is_short:
        metrics.refused["store_unavailable"] += len(messages)
        return [store.memory.shortage() for _ in messages]
    granted, retry_after_ms = await spend(store, sender.address, len(messages))
    if granted is None:
        return [not_granted(granted, retry_after_ms) for _ in messages]
    allowed, others = messages[:granted], messages[granted:]
    results = await asyncio.gather(*(_result(store, metrics, sender.address, message) for message in allowed))
    metrics.refused["rate_limited"] += len(others)
    return results + [rate_limited(retry_after_ms) for _ in others]


async def _result(store: Store, metrics: Metrics, sender: str, message: Message) -> SendResult | RelayError:
    outcome, error = await submit_and_wait(store, metrics, sender, message, to_task_only=True)
    if error is not None:
        return error
    if isinstance(outcome, Duplicate):
        return SendResult(message.id, True, outcome.ended or "queued", None)
    assert isinstance(outcome, Stored | Blocked)
    return SendResult(message.id, False, "queued", outcome.seq)
