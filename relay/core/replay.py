"""Replay: messages of a dump back into their mailboxes, by the rules of every door and the ordinary accept."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from relay.core.intake import parse_for_tenant, submit_and_wait
from relay.errors import ConfigurationError, Malformed, RelayError
from relay.protocol.address import is_address
from relay.protocol.message import Message
from relay.settings import Settings
from relay.store.record.body import parted, without_payload
from relay.store.store import Store
from relay.telemetry.metrics import Metrics

AT_ONCE = 200
BEGINNING_MS, END_OF_TIME_MS = 0, 2**53
NO_LIMIT = 2**53
TO_TASK_ONLY = 2  # a request whose reply goes to its task, not to a mailbox

Row = dict[str, Any]  # of the table MAILBOXES, docs/pipeline.md
Refused = Callable[[Row, RelayError], None]


class _Dumped(Struct):
    """A row, as far as it becomes a message."""

    box: str
    tenant: str
    to: str
    sender: str = msgspec.field(name="from")
    id: str
    priority: int
    bytes: Annotated[int, Meta(ge=1)]
    expires_at: int
    not_before: int
    max_attempts: int
    ack_timeout_ms: int
    receipt: Literal[0, 1, 2]
    request: Literal[0, 1, 2]
    body: str


COLUMNS = {"entry", "type", "accepted_at", "reason"} | {field.encode_name for field in msgspec.structs.fields(_Dumped)}


class _Rest(Struct):
    """The fields of the body beside the payload; of type and thread the row cannot tell empty from none."""

    type: str | None = None
    thread: str | None = None
    reply_to: str | None = None
    signature: str | None = None
    headers: dict[str, str] | None = None


_rest = msgspec.json.Decoder(_Rest)
_payload = msgspec.json.Decoder(Raw)


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
            and self.since_ms <= (row["accepted_at"] or BEGINNING_MS) < self.until_ms
            and self.reason in (row["reason"] or "")
        )


def address_of(row: Row) -> str:
    return f"{row['tenant']}/{row['to']}"


def sender_of(row: Row) -> str:
    return f"{row['tenant']}/{row['from']}"


def read_dump(folder: Path, wanted: Wanted) -> Iterator[Row]:
    """The rows of a dump, each mailbox in its order. Raises ConfigurationError unless there is a whole one."""
    import pyarrow  # only here: it comes with the packages of the pipeline
    import pyarrow.parquet as parquet

    files = sorted((folder / "mailboxes").glob("*.parquet"))
    if not (folder / "mailboxes" / "_SUCCESS").exists():
        raise ConfigurationError(f"{folder} holds no finished dump of mailboxes")
    for path in files:
        try:
            file = parquet.ParquetFile(path)
            if missing := COLUMNS.difference(file.schema_arrow.names):
                raise ConfigurationError(f"{folder} holds no dump of mailboxes: it has no {', '.join(sorted(missing))}")
            for batch in file.iter_batches(batch_size=AT_ONCE):
                yield from filter(wanted.has, batch.to_pylist())
        except (OSError, pyarrow.ArrowException) as error:
            raise ConfigurationError(f"{path} cannot be read: {error}") from None


def message_of(row: Row, now_ms: int, max_payload_bytes: int) -> Message | None:
    """The message as its sender would send it now: the rest of its time, the rest of its delay. None if it has expired.

    A dead letter has its whole time again and no delay, as when it is revived.
    Raises whatever a sender would be refused with: anybody may have written the file."""
    try:
        dumped = msgspec.convert(row, _Dumped)
        raw = _as_sent(dumped, now_ms)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise Malformed(str(error)[:300]) from None
    if not is_address(sender_of(row)):
        raise Malformed("Expected an address, tenant/agent - at `$.from`")
    has_expired = dumped.box == "mailbox" and dumped.expires_at <= now_ms
    return None if has_expired else parse_for_tenant(dumped.tenant, raw, max_payload_bytes)


def _as_sent(dumped: _Dumped, now_ms: int) -> Raw:
    """Raises msgspec's errors or ValueError if the body is not what a body is."""
    body, size = dumped.body.encode(), dumped.bytes
    payload, behind = parted(body, size)
    if behind[:1] not in (b"", b","):
        raise ValueError(f"the payload does not end after {size} bytes")
    rest = _rest.decode(without_payload(body, size))
    lives = dumped.box == "mailbox"
    fields = msgspec.structs.asdict(rest) | {
        "id": dumped.id,
        "to": f"{dumped.tenant}/{dumped.to}",
        "payload": _payload.decode(payload.decode()),
        "priority": dumped.priority,
        "ttl_s": (dumped.expires_at - now_ms) / 1_000 if lives else None,
        "delay_s": max(0, dumped.not_before - now_ms) / 1_000 if lives else 0,
        "max_attempts": dumped.max_attempts,
        "ack_timeout_s": dumped.ack_timeout_ms / 1_000 or None,
        "receipt": "all" if dumped.receipt == 2 else dumped.receipt == 1,
        "request": dumped.request > 0,
    }
    return Raw(msgspec.json.encode(fields))


def for_replay(settings: Settings) -> Settings:
    """Settings under which all of a dump may come back: its senders were allowed once, and an operator repeats it."""
    return replace(
        settings,
        open_tenants=("*",),
        sender_max_mailboxes=NO_LIMIT,
        tenant_max_mailboxes=NO_LIMIT,
        max_threads=NO_LIMIT,
    )


async def replay(
    store: Store, rows: Iterable[Row], rate_per_s: float, sent: Callable[[int], None], refused: Refused
) -> "Counter[str]":
    """Sends messages in order, no faster than the rate. Returns the number of each outcome: stored, duplicate, blocked,
    expired, or the code of a refusal, of which `refused` hears. Replay is idempotent."""
    became: Counter[str] = Counter()
    metrics, began, count = Metrics(), time.monotonic(), 0
    for batch in _chunks(rows, min(AT_ONCE, max(1, int(rate_per_s)))):
        outcomes = await asyncio.gather(*(_send(store, metrics, row) for row in batch))
        for row, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, RelayError):
                refused(row, outcome)
            became[outcome.code if isinstance(outcome, RelayError) else outcome] += 1
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


async def _send(store: Store, metrics: Metrics, row: Row) -> str | RelayError:
    try:
        message = message_of(row, store.clock.now_ms(), store.settings.max_payload_bytes)
    except RelayError as error:
        return error
    if message is None:
        return "expired"
    to_task_only = row["request"] == TO_TASK_ONLY
    outcome, refusal = await submit_and_wait(store, metrics, sender_of(row), message, to_task_only=to_task_only)
    return refusal or outcome.word
