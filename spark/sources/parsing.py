"""Entries of the event log as Arrow columns. Each step is one call for a whole page."""

import re
from collections.abc import Sequence
from itertools import chain, repeat

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv
from pyspark.sql.pandas.types import to_arrow_schema

from spark.schemas import EVENT_SCHEMA_VERSION, EVENTS
from spark.sources.store import StoreError

Entry = tuple[bytes, list[bytes]]  # an id, and a flat list of names and values

SCHEMA = to_arrow_schema(EVENTS)
ESCAPED = frozenset(("who", "reason", "type", "thread"))  # what others may write as they like
UNREADABLE = "unreadable"  # the kind of an event that is not as it should be; the others of its page are read
LOST = "lost"  # the kind of a row that stands where entries are missing; `reason` says how many
PLACE_OF_LOST = -1  # before the first event of an entry
OWN_COLUMNS = 4  # shard, stream_ms, stream_n and place are not in the event itself

_NAME = EVENT_SCHEMA_VERSION.encode()
_IN_EVENT = list(SCHEMA)[OWN_COLUMNS:]
_EVENT = pa.schema(_IN_EVENT)
_IDS = pa.schema([("ms", pa.int64()), ("n", pa.int64())])
_ESCAPED = re.compile(r"\\(.)")
_MEANING = {"t": "\t", "n": "\n", "r": "\r", "\\": "\\"}


def parse(shard: int, entries: Sequence[Entry]) -> pa.RecordBatch:
    """The events of some entries, in their order. Raises StoreError for events of another version."""
    ids = [entry[0] for entry in entries]
    events = [_values(shard, entry[1]) for entry in entries]
    counts = [len(some) for some in events]
    lines = b"\n".join(chain.from_iterable(events))
    try:
        columns = _columns(lines, _EVENT, "\t")
    except pa.ArrowInvalid:
        lines = b"\n".join(_readable(line, entry) for entry, some in zip(ids, events, strict=True) for line in some)
        columns = _columns(lines, _EVENT, "\t")
    if b"\\" in lines:
        columns = [
            _unescaped(column) if field.name in ESCAPED else column
            for field, column in zip(_IN_EVENT, columns, strict=True)
        ]
    owner = pa.array(chain.from_iterable(map(repeat, range(len(ids)), counts)), pa.int32())
    places = pa.array(chain.from_iterable(map(range, counts)), pa.int32())
    at, number = (column.take(owner) for column in _columns(b"\n".join(ids), _IDS, "-"))
    return pa.record_batch([_constant(shard, len(owner)), at, number, places, *columns], schema=SCHEMA)


def lost(shard: int, stream_id: str, entries: int) -> pa.RecordBatch:
    """The row for a gap: this many entries before this one were trimmed before they were read."""
    ms, _, n = stream_id.partition("-")
    place = {"shard": shard, "stream_ms": int(ms), "stream_n": int(n), "place": PLACE_OF_LOST}
    row = dict.fromkeys(SCHEMA.names) | place | {"kind": LOST, "at_ms": int(ms), "reason": str(entries)}
    return pa.RecordBatch.from_pylist([row], schema=SCHEMA)


def _values(shard: int, fields: list[bytes]) -> list[bytes]:
    if fields.count(_NAME) * 2 != len(fields):
        other = next(name.decode() for name in fields[::2] if name != _NAME)
        raise StoreError(f"shard {shard} has events of version {other!r}; this pipeline reads {EVENT_SCHEMA_VERSION!r}")
    return fields[1::2]


def _columns(lines: bytes, schema: pa.Schema, delimiter: str) -> list[pa.Array]:
    """Lines of separated values, column by column. What is empty is null."""
    table = csv.read_csv(
        pa.BufferReader(lines),
        csv.ReadOptions(use_threads=False, block_size=len(lines) + 1, column_names=schema.names),
        csv.ParseOptions(delimiter=delimiter, quote_char=False, ignore_empty_lines=False),
        csv.ConvertOptions(column_types=schema, null_values=[""], strings_can_be_null=True),
    )
    return [column.combine_chunks() for column in table.columns]


def _readable(line: bytes, entry_id: bytes) -> bytes:
    """The line, or one in its place that says when it was written."""
    try:
        if b"\n" not in line:
            _columns(line, _EVENT, "\t")
            return line
    except pa.ArrowInvalid:
        pass
    return b"\t".join((UNREADABLE.encode(), entry_id.partition(b"-")[0], *[b""] * (len(_IN_EVENT) - 2)))


def _constant(number: int, length: int) -> pa.Array:
    return pa.repeat(pa.scalar(number, pa.int32()), length)


def _unescaped(column: pa.Array) -> pa.Array:
    """Few values have anything to undo."""
    escaped = pc.fill_null(pc.match_substring(column, "\\"), False)
    if not pc.any(escaped).as_py():
        return column
    plain = [unescape(text) for text in column.filter(escaped).to_pylist()]
    return pc.replace_with_mask(column, escaped, pa.array(plain, pa.string()))


def unescape(text: str) -> str:
    """The text that the relay made safe for a column."""
    return _ESCAPED.sub(lambda match: _MEANING.get(match[1], match[1]), text) if "\\" in text else text
