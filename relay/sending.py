"""Sending: the rules that every message meets on its way in, whichever door it comes through."""

import asyncio
import logging
from dataclasses import dataclass

import msgspec

from relay.auth import Identity
from relay.errors import (
    Forbidden,
    LockLost,
    NotFound,
    QueueFull,
    RateLimited,
    RelayError,
    StoreUnavailable,
    UnknownAgent,
)
from relay.logs import LIFE
from relay.metrics import Metrics
from relay.protocol import Message, parse_message
from relay.store.batches import Outcome
from relay.store.mailboxes import Draft
from relay.store.store import Store

OFFLINE_RETRY_MS, ONLINE_RETRY_MS = 30_000, 1_000  # when a mailbox has no pace yet


def checked(raw: msgspec.Raw, sender: Identity, max_payload_bytes: int) -> Message:
    """A message that may be sent. Raises Malformed, TooLarge or Forbidden."""
    sender.require("send")
    message = parse_message(raw, sender.tenant, max_payload_bytes)
    if not message.to.startswith(sender.tenant + "/"):
        raise Forbidden("the recipient is of another tenant")
    return message


def rate_limited(retry_after_ms: int) -> RateLimited:
    return RateLimited("too many messages", retry_after_ms=max(1, retry_after_ms))


def not_granted(granted: int | None, retry_after_ms: int) -> RelayError:
    """Why something may not be said now: the rate limit, or a store that cannot tell."""
    return StoreUnavailable("the store does not answer") if granted is None else rate_limited(retry_after_ms)


async def spend(store: Store, sender: str, count: int) -> tuple[int | None, int]:
    """How many the sender may send now, and in how many ms more; None if the store is away."""
    spent: asyncio.Future[tuple[int | None, int]] = asyncio.get_running_loop().create_future()
    store.rates.spend(sender, count, lambda granted, wait_ms: spent.set_result((granted, wait_ms)))
    return await asyncio.shield(spent)


def refusal(draft: Draft, outcome: Outcome) -> RelayError | None:
    """Why the store did not take a message; None if it did, or has it already."""
    match outcome[0]:
        case b"stored" | b"duplicate" | b"blocked":
            return None
        case b"full":
            return _queue_full(outcome)
        case b"unknown":
            return UnknownAgent(f"{draft.to} is not registered")
        case _:
            return StoreUnavailable("it may or may not be stored; the same id again is safe")


def _queue_full(outcome: Outcome) -> QueueFull:
    """With when to try again: from the pace at which the mailbox drains."""
    _, depth, size, pace_ms, online, max_messages, max_bytes = outcome
    retry_after_ms = pace_ms if pace_ms >= 0 and online else ONLINE_RETRY_MS if online else OFFLINE_RETRY_MS
    return QueueFull(
        "the recipient's mailbox is full",
        retry_after_ms=max(10, min(retry_after_ms, OFFLINE_RETRY_MS)),
        depth=depth,
        limit=max_messages,
        bytes=size,
        bytes_limit=max_bytes,
    )


def not_held(code: str) -> RelayError:
    """Why an entry could not be settled, from the word of the script."""
    if code == "not_found":
        return NotFound("no such entry")
    return LockLost("somebody else holds the entry, or nobody does")


def note_outcome(metrics: Metrics, draft: Draft, outcome: Outcome, error: RelayError | None) -> None:
    """Counts, and tells who wants to know, what became of a message that was sent."""
    if LIFE.isEnabledFor(logging.DEBUG):
        step = error.code if error else outcome[0].decode()
        LIFE.debug(step, extra={"sender": draft.sender, "to": draft.to, "id": draft.id})
    if error is not None:
        metrics.refused[error.code] += 1
    elif outcome[0] == b"stored":
        metrics.accepted += 1
    elif outcome[0] == b"duplicate":
        metrics.duplicate += 1


@dataclass(frozen=True, slots=True)
class Accepted:
    """The answer to one message that is in the mailbox, or was. `seq` is not known of a duplicate."""

    id: str
    duplicate: bool
    state: str  # queued, or how a duplicate has ended
    seq: int | None


async def send_all(
    store: Store, metrics: Metrics, sender: Identity, messages: list[Message]
) -> list[Accepted | RelayError]:
    """Sends messages and waits for every answer, in their order."""
    granted, retry_after_ms = await spend(store, sender.address, len(messages))
    if granted is None:
        return [not_granted(granted, retry_after_ms) for _ in messages]
    answers: list[Accepted | RelayError] = []
    if messages[:granted]:
        answers += await asyncio.gather(*(_send_one(store, metrics, sender, one) for one in messages[:granted]))
    answers += [rate_limited(retry_after_ms) for _ in messages[granted:]]
    metrics.refused["rate_limited"] += len(messages) - granted
    return answers


async def _send_one(store: Store, metrics: Metrics, sender: Identity, message: Message) -> Accepted | RelayError:
    answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def answered(_: Draft, outcome: Outcome) -> None:
        answer.set_result(outcome)

    draft = store.mailboxes.draft(sender.address, message, answered, reply_to_task_only=True)
    store.mailboxes.accept(draft)
    outcome = await asyncio.shield(answer)
    error = refusal(draft, outcome)
    note_outcome(metrics, draft, outcome, error)
    if error is not None:
        return error
    if message.request:
        lives_ms, blocked = store.mailboxes.lives_ms(message), outcome[0] == b"blocked"
        store.tasks.open(sender.address, message.id, message.to, lives_ms, thread=message.thread, blocked=blocked)
    if outcome[0] == b"duplicate":
        return Accepted(message.id, True, outcome[2].decode() or "queued", None)
    return Accepted(message.id, False, "queued", outcome[2])
