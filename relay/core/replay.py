"""Replay: messages of a dump back into their mailboxes, through the ordinary accept."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct

from relay.core.intake import submit_and_wait
from relay.errors import ConfigurationError
from relay.protocol.message import Message
from relay.settings import Settings
from relay.store.body import payload_in, without_payload
from relay.store.store import Store
from relay.telemetry.metrics import Metrics

AT_ONCE = 200
BEGINNING_MS, END_OF_TIME_MS = 0, 2**53
NO_LIMIT = 2**53
TO_TASK_ONLY = 2  # a request whose reply goes to its task, not to a mailbox

Row = dict[str, Any]  # of the table MAILBOXES, docs/pipeline.md


class _Rest(Struct):
    """The fields of the body beside the payload; of type and thread the row cannot tell empty from none."""

    type: str | None = None
    thread: str | None = None
    reply_to: str | None = None
    signature: str | None = None
    headers: dict[str, str] | None = None


_rest = msgspec.json.Decoder(_Rest)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Selects messages of a dump; without conditions, all. Times are those of acceptance."""

    box: str = "mailbox"  # or "dead"
    agents: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()
    since_ms: int = BEGINNING_MS
    until_ms: int = END_OF_TIME_MS
    reason: str = ""

    def has(self, row: Row) -> bool:
        return (
            row["box"] == self.box
            and (not self.agents or address_of(row) in self.agents)
            and (not self.types or row["type"] in self.types)
            and self.since_ms <= row["accepted_at"] < self.until_ms
            and self.reason in (row["reason"] or "")
        )


def address_of(row: Row) -> str:
    return f"{row['tenant']}/{row['to']}"


def read_dump(folder: Path, wanted: Wanted) -> Iterator[Row]:
    """The messages of a dump, each mailbox in its order. Raises ConfigurationError unless there is a whole one."""
    import pyarrow.parquet as parquet  # only here: it comes with the packages of the pipeline

    files = sorted((folder / "mailboxes").glob("*.parquet"))
    if not (folder / "mailboxes" / "_SUCCESS").exists():
        raise ConfigurationError(f"{folder} holds no finished dump of mailboxes")
    for file in files:
        for batch in parquet.ParquetFile(file).iter_batches(batch_size=AT_ONCE):
            yield from filter(wanted.has, batch.to_pylist())


def message_of(row: Row, now_ms: int) -> Message | None:
    """The message as its sender would send it now: the rest of its time, the rest of its delay. None if it has expired.

    A dead letter has its whole time again and no delay, as when it is revived.
    """
    body, size = row["body"].encode(), row["bytes"]
    rest = _rest.decode(without_payload(body, size))
    lives = row["box"] == "mailbox"
    left_ms = row["expires_at"] - now_ms
    if lives and left_ms <= 0:
        return None
    return Message(
        id=row["id"],
        to=address_of(row),
        payload=Raw(payload_in(body, size)),
        type=rest.type,
        thread=rest.thread,
        reply_to=rest.reply_to,
        priority=row["priority"],
        ttl_s=left_ms / 1_000 if lives else None,
        delay_s=max(0, row["not_before"] - now_ms) / 1_000 if lives else 0,
        max_attempts=row["max_attempts"],
        ack_timeout_s=row["ack_timeout_ms"] / 1_000 or None,
        receipt="all" if row["receipt"] == 2 else row["receipt"] == 1,
        request=row["request"] > 0,
        signature=rest.signature,
        headers=rest.headers,
    )


def for_replay(settings: Settings) -> Settings:
    """Settings under which all of a dump may come back: its senders were allowed once, and an operator repeats it."""
    return replace(
        settings,
        open_tenants=("*",),
        sender_max_mailboxes=NO_LIMIT,
        tenant_max_mailboxes=NO_LIMIT,
        max_threads=NO_LIMIT,
    )


async def replay(store: Store, rows: Iterable[Row], rate_per_s: float, sent: Callable[[int], None]) -> "Counter[str]":
    """Sends messages in order, no faster than the rate. Returns the number of each outcome: stored, duplicate, blocked,
    expired, or the code of a refusal. Replay is idempotent."""
    became: Counter[str] = Counter()
    metrics, began, count = Metrics(), time.monotonic(), 0
    for batch in _chunks(rows, min(AT_ONCE, max(1, int(rate_per_s)))):
        became.update(await asyncio.gather(*(_send(store, metrics, row) for row in batch)))
        count += len(batch)
        sent(len(batch))
        await asyncio.sleep(max(0.0, began + count / rate_per_s - time.monotonic()))
    return became


def _chunks(rows: Iterable[Row], size: int) -> Iterator[list[Row]]:
    batch: list[Row] = []
    for row in rows:
        batch.append(row)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


async def _send(store: Store, metrics: Metrics, row: Row) -> str:
    message = message_of(row, store.clock.now_ms())
    if message is None:
        return "expired"
    sender = f"{row['tenant']}/{row['from']}"
    to_task_only = row["request"] == TO_TASK_ONLY
    outcome, error = await submit_and_wait(store, metrics, sender, message, to_task_only=to_task_only)
    return error.code if error else outcome.word
