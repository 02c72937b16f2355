"""Entries of the event log as Arrow columns. Each step is one call for a whole page."""

import re
from collections.abc import Sequence
from itertools import chain, repeat

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv
from pyspark.sql.pandas.types import to_arrow_schema

from spark.schemas import EVENTS, UNDONE
from spark.sources.store import StoreError

Entry = tuple[bytes, list[bytes]]  # an id, and a flat list of names and values

SCHEMA = to_arrow_schema(EVENTS)
ESCAPED = frozenset(("who", "reason", "type", "thread"))  # what others may write as they like
UNREADABLE = "unreadable"  # the kind of an event that is not as it should be; the others of its page are read
LOST = "lost"  # the kind of a row that stands where entries are missing; `reason` says how many
OWN_PLACE = -1  # of rows that no event is behind: before the first event of an entry
OWN_COLUMNS = 4  # shard, stream_ms, stream_n and place are not in the event itself

_EVENT = pa.schema(list(SCHEMA)[OWN_COLUMNS:])  # the columns of an event
_FIRST_LINE = pa.schema([SCHEMA.field("at_ms"), SCHEMA.field("instance")])  # of an entry, above the lines of its events
_LINE = pa.schema(
    field.with_name("held_ms") if field.name == "taken_at" else field
    for field in _EVENT
    if field.name not in ("at_ms", "instance")
)
_MOST_LEFT_OUT = len(_LINE) - _LINE.names.index("tenant") - 1  # the empty columns at the end of a line
_ENDS = pa.array([b"\t" * (n if n <= _MOST_LEFT_OUT else 99) + b"\n" for n in range(len(_LINE))], pa.binary())
_IDS = pa.schema([("ms", pa.int64()), ("n", pa.int64())])
_ESCAPED = re.compile(r"\\(.)")
_MEANING = {"t": "\t", "n": "\n", "r": "\r", "\\": "\\"}


def parse(shard: int, entries: Sequence[Entry]) -> pa.RecordBatch:
    """The events of some entries, in their order. Raises StoreError for events of another version."""
    for _, fields in entries:
        _check(shard, fields)
    ids, counts = [entry[0] for entry in entries], [count(entry[1]) for entry in entries]
    owner = pa.array(chain.from_iterable(map(repeat, range(len(ids)), counts)), pa.int32())
    try:
        columns = _of_lines(entries, owner)
    except pa.ArrowInvalid:
        columns = _of_lines([_mended(entry) for entry in entries], owner)
    places = pa.array(chain.from_iterable(map(range, counts)), pa.int32())
    at, number = (column.take(owner) for column in _columns(b"\n".join(ids), _IDS, "-"))
    return pa.record_batch([_constant(shard, len(owner)), at, number, places, *columns], schema=SCHEMA)


def count(fields: list[bytes]) -> int:
    """How many events an entry has. A text without lines counts as one that cannot be read."""
    return max(1, fields[1].count(b"\n"))


def _check(shard: int, fields: list[bytes]) -> None:
    if fields[::2] != [b"e1"]:
        raise StoreError(f"shard {shard} has events of version {fields[0].decode()!r}; this pipeline reads 'e1'")


def _of_lines(entries: Sequence[Entry], owner: pa.Array) -> list[pa.Array]:
    """The columns of events that have a line each, below one that says when and where."""
    firsts, _, rests = zip(*(fields[1].partition(b"\n") for _, fields in entries), strict=True)
    first_lines, lines = (b"\n".join(some) for some in (firsts, rests))
    at_ms, instance = (column.take(owner) for column in _columns(first_lines, _FIRST_LINE, "\t"))
    read = dict(zip(_LINE.names, _columns(_filled_up(lines), _LINE, "\t"), strict=True))
    read |= {"at_ms": at_ms, "instance": instance}
    read["taken_at"] = pc.subtract(at_ms, read["held_ms"])
    own = pc.starts_with(read["who"], ".")
    read["who"] = pc.if_else(own, pc.binary_join_element_wise(pc.fill_null(instance, ""), read["who"], ""), read["who"])
    return _plain([read[name] for name in _EVENT.names], lines)


def _filled_up(lines: bytes) -> pa.Buffer:
    """Lines with the columns that were left out. One that has too few to be an event gets too many."""
    each = pc.split_pattern(pa.array([lines], pa.binary()), "\n").flatten()
    missing = pc.subtract(len(_LINE) - 1, pc.count_substring(each, "\t"))
    ends = _ENDS.take(pc.max_element_wise(missing, 0))
    return pc.binary_join_element_wise(each, ends, b"").buffers()[2]


def lost(shard: int, stream_id: str, entries: int) -> pa.RecordBatch:
    """The row for a gap: this many entries before this one were trimmed before they were read."""
    return _own_row(shard, stream_id, kind=LOST, reason=str(entries))


def undone(shard: int, last_kept: str, newest_read: str) -> pa.RecordBatch:
    """The row for a log that went back in time: what was read of it between these entries is undone."""
    return _own_row(shard, newest_read, kind=UNDONE, entry=last_kept, reason=newest_read)


def _own_row(shard: int, stream_id: str, **columns: str) -> pa.RecordBatch:
    """A row that no event is behind."""
    ms, _, n = stream_id.partition("-")
    place = {"shard": shard, "stream_ms": int(ms), "stream_n": int(n), "place": OWN_PLACE}
    row = dict.fromkeys(SCHEMA.names) | place | {"at_ms": int(ms)} | columns
    return pa.RecordBatch.from_pylist([row], schema=SCHEMA)


def _columns(lines: bytes | pa.Buffer, schema: pa.Schema, delimiter: str) -> list[pa.Array]:
    """Lines of separated values, column by column. What is empty is null."""
    table = csv.read_csv(
        pa.BufferReader(lines),
        csv.ReadOptions(use_threads=False, block_size=len(lines) + 1, column_names=schema.names),
        csv.ParseOptions(delimiter=delimiter, quote_char=False, ignore_empty_lines=False),
        csv.ConvertOptions(column_types=schema, null_values=[""], strings_can_be_null=True),
    )
    return [column.combine_chunks() for column in table.columns]


def _mended(entry: Entry) -> Entry:
    """The entry with an event that says when it was written in the place of each that cannot be read.

    None of them can be read without the first line.
    """
    first, _, rest = entry[1][1].partition(b"\n")
    has_first = _is_readable(first, _FIRST_LINE)
    unreadable = UNREADABLE.encode() + b"\t" * (len(_LINE) - 1)
    mended = [line if has_first and _is_readable(_filled_up(line), _LINE) else unreadable for line in rest.split(b"\n")]
    return entry[0], [b"e1", b"\n".join((first if has_first else entry[0].partition(b"-")[0] + b"\t", *mended))]


def _is_readable(line: bytes | pa.Buffer, schema: pa.Schema) -> bool:
    try:
        _columns(line, schema, "\t")
    except pa.ArrowInvalid:
        return False
    return True


def _constant(number: int, length: int) -> pa.Array:
    return pa.repeat(pa.scalar(number, pa.int32()), length)


def _plain(columns: list[pa.Array], lines: bytes) -> list[pa.Array]:
    """The columns of the events in these lines, without the escapes."""
    if b"\\" not in lines:
        return columns
    named = zip(_EVENT.names, columns, strict=True)
    return [_unescaped(column) if name in ESCAPED else column for name, column in named]


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
