"""An archive of the events of a company that never was, by day, as the archive job writes it."""

from binascii import crc32
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.pipeline_company import DAY_MS, TYPES, Company, Messages, Numbers, Some, rank_within

UNTIL_MS = 1_799_971_200_000  # a midnight
SHARDS = 64
SESSIONS_A_DAY = 2
THREADS = (None, *(f"thread-{n}" for n in range(1, 20)))
UNHELD = ("accepted", "cancelled", "expired")  # what happens to messages that no session holds


def make_archive(folder: Path, messages: int, days: int = 7, agents: int = 10, until_ms: int = UNTIL_MS) -> int:
    """Writes `folder/events`; what has no end at `until_ms` still waits. Returns how many events there are."""
    company = Company(messages, days, agents, until_ms)
    table = pa.concat_tables([_messages_table(company), _sessions_table(company)])
    table = table.filter(pc.less(table["at_ms"], until_ms))
    shard, at_ms = table["shard"].to_numpy(), table["at_ms"].to_numpy()
    order = np.lexsort((at_ms, shard))
    table = table.take(order)
    at_ms = at_ms[order]
    stream_n = rank_within(at_ms * SHARDS + shard[order])
    table = table.add_column(1, "stream_ms", pa.array(at_ms)).add_column(2, "stream_n", pa.array(stream_n))
    table = table.add_column(3, "place", pa.array(np.ones(len(at_ms), dtype=np.int32)))
    _write_days(folder, table, at_ms // DAY_MS)
    return len(at_ms)


def _write_days(folder: Path, table: pa.Table, days: Numbers) -> None:
    for batch, day in enumerate(np.unique(days)):
        dt = datetime.fromtimestamp(int(day) * 86_400, UTC).strftime("%Y-%m-%d")
        part = folder / "events" / f"dt={dt}" / f"batch={batch}"
        part.mkdir(parents=True)
        pq.write_table(table.filter(pa.array(days == day)), part / "part-00000.parquet", compression="zstd")


def _messages_table(company: Company) -> pa.Table:
    groups = [some for some in company.events() if (some.kind, some.attempt) != ("taken", 1)]
    messages = company.messages
    of = np.concatenate([some.of for some in groups])
    sizes = [len(some.of) for some in groups]
    at_ms = np.concatenate([some.at_ms for some in groups])
    taken_at = np.concatenate([_taken_at(some) for some in groups])
    kinds = np.repeat(np.arange(len(groups)), sizes)
    is_held = np.isin(kinds, [n for n, some in enumerate(groups) if some.kind not in UNHELD])
    to = messages.to[of]
    is_told = kinds != [some.kind for some in groups].index("accepted")  # what does not change, by the first event
    return pa.table(
        {
            "shard": pa.array(_shards(company)[to]),
            "kind": _words([some.kind for some in groups], kinds),
            "at_ms": at_ms,
            "entry": _entries(messages).take(of),
            "seq": pa.array(messages.seq[of], mask=is_told),
            "attempt": np.repeat([some.attempt for some in groups], sizes).astype(np.int32),
            "who": pc.if_else(is_held, _sessions(company, to, at_ms), ""),
            "instance": _words(["a1", "b2"], of % 2),
            "reason": _words([some.reason for some in groups], kinds),
            "taken_at": pa.array(taken_at, mask=taken_at < 0),
            "tenant": _words([tenant for tenant, _ in company.agents], to),
            "to": _words([name for _, name in company.agents], to),
            "from": _words([name for _, name in company.agents], messages.sender[of]),
            "id": pc.binary_join_element_wise("m", pa.array(of).cast(pa.string()), "-"),
            "type": pc.if_else(is_told, None, _words(list(TYPES), messages.type[of])),
            "thread": pc.if_else(is_told, None, _words(THREADS, messages.thread[of])),
            "priority": pa.array(messages.priority[of].astype(np.int32), mask=is_told),
            "bytes": pa.array(messages.bytes[of], mask=is_told),
        }
    )


def _sessions_table(company: Company) -> pa.Table:
    """Every agent's sessions join and leave."""
    agents = np.repeat(np.arange(len(company.agents)), company.days * SESSIONS_A_DAY)
    part_ms = DAY_MS // SESSIONS_A_DAY
    begins = company.since_ms + np.tile(np.arange(company.days * SESSIONS_A_DAY) * part_ms, len(company.agents))
    to, at_ms = np.tile(agents, 2), np.concatenate([begins, begins + part_ms - 1])
    count, is_end = len(to), np.repeat([0, 1], len(agents))
    nothing = pa.nulls(count)
    empty = pa.array([""] * count)
    return pa.table(
        {
            "shard": pa.array(_shards(company)[to]),
            "kind": _words(["joined", "left"], is_end),
            "at_ms": at_ms,
            "entry": empty,
            "seq": nothing.cast(pa.int64()),
            "attempt": nothing.cast(pa.int32()),
            "who": _sessions(company, to, at_ms),
            "instance": _words(["a1", "b2"], to % 2),
            "reason": _words(["exclusive", "closed"], is_end),
            "taken_at": nothing.cast(pa.int64()),
            "tenant": _words([tenant for tenant, _ in company.agents], to),
            "to": _words([name for _, name in company.agents], to),
            **dict.fromkeys(("from", "id", "type", "thread"), empty),
            "priority": nothing.cast(pa.int32()),
            "bytes": nothing.cast(pa.int64()),
        }
    )


def _taken_at(some: Some) -> Numbers:
    return np.full(len(some.of), -1) if some.taken_at is None else some.taken_at


def _shards(company: Company) -> npt.NDArray[np.int32]:
    return np.array([crc32(f"{tenant}/{name}".encode()) % SHARDS for tenant, name in company.agents], dtype=np.int32)


def _sessions(company: Company, to: Numbers, at_ms: Numbers) -> Any:
    part = (at_ms - company.since_ms) // (DAY_MS // SESSIONS_A_DAY)
    number = pa.array(to * 1_000 + part).cast(pa.string())
    return pc.binary_join_element_wise(_words(["a1", "b2"], to % 2), number, ".")


def _entries(messages: Messages) -> Any:
    ids = pc.binary_join_element_wise(
        pa.array(messages.accepted_at).cast(pa.string()), pa.array(messages.nth).cast(pa.string()), "-"
    )
    lanes = pa.array(np.where(messages.priority > 0, "p9", ""))
    return pc.binary_join_element_wise(ids, lanes, "")


def _words(words: Sequence[str | None], numbers: npt.NDArray[Any]) -> Any:
    return pa.array(words).take(pa.array(numbers))
