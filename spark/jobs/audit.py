"""audit: checks message by message whether the books balance.

python -m spark audit --archive DIR [--since TIME] [--until TIME] [--json] [--offline] [--mailboxes DIR]
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark.archive.reader import read_dump, read_events
from spark.errors import BadInput, local_folder
from spark.period import Period, add_period
from spark.schemas import EXCEPTIONS
from spark.session import spark_session
from spark.sources.event_log import Mark
from spark.sources.history import still_has
from spark.sources.store import Store, locate, options_from_environ
from spark.sources.unarchived import Tail, late_receipts, now_ms, tail
from spark.transforms import exceptions
from spark.transforms.books import decidable, edges, missing_from, totals
from spark.transforms.lives import ENDS, ENTRY, POSITION_OF_MS, beginnings_and_ends, lives
from spark.transforms.sequences import blocked, holes, numbered
from spark.transforms.undone import begun_in_vain, in_force, not_accepted_again
from spark.visible import visible

SHOWN = 100  # exceptions that are printed for people; --json has them all
DUMP_TAKES_MS = 600_000  # a dump's first file may be written this long after the first mailbox was read
COLUMNS = ("kind", "tenant", "to", "from", "id", "evidence")


@dataclass(frozen=True, slots=True)
class Mailboxes:
    """The content of the mailboxes, read between two times."""

    rows: DataFrame
    from_ms: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class Books:
    """accepted + revived = acked + expired + dead + cancelled + waiting, and the exceptions."""

    counts: dict[str, int]  # and what was `undone` of what had been accepted or revived
    kinds: dict[str, int]  # how many exceptions there are of each kind
    exceptions: DataFrame  # of COLUMNS; a gap can make more of them than the driver can hold

    @property
    def faults(self) -> int:
        """What is missing because the store went back in time is in no book."""
        return sum(self.kinds.values()) - self.kinds.get("missing", 0)


def main(argv: list[str]) -> int:
    """Prints the books. Returns 0 if they balance, 1 if they do not."""
    options = parser().parse_args(argv)
    period = Period.parse(options.since, options.until)
    books = audit(spark_session("audit"), options, period)
    sys.stdout.writelines(as_json(books) if options.json else as_text(books))
    return 1 if books.faults else 0


def audit(spark: SparkSession, options: argparse.Namespace, period: Period) -> Books:
    """Reads the archive, then the mailboxes, then the log behind the archive: what ends meanwhile is seen to end."""
    with nullcontext() if options.offline else Store(locate(options_from_environ())) as store:
        archived = read_events(spark, options.archive, period, to_the_end=True)
        events = archived.transform(in_force)
        _say("audit: reading the archive")
        shards = events.transform(edges).localCheckpoint()
        if shards.isEmpty() and archived.isEmpty():
            raise BadInput(f"--archive {options.archive}: there are no events in this period")
        of_messages = (
            events.transform(beginnings_and_ends)
            .transform(lives)
            .join(F.broadcast(shards), on="shard", how="left")
            .persist(StorageLevel.MEMORY_AND_DISK)
        )
        problems = _in_the_archive(events, of_messages, options.ttl_s * 1_000)
        problems.append(archived.transform(not_accepted_again).transform(exceptions.missing))
        lost = None
        mailboxes = _mailboxes(spark, options, store)
        if store:
            _check(store, shards)
        if mailboxes:
            _say("audit: comparing with the mailboxes")
            lost = _lost(spark, of_messages, mailboxes, store).where(period.has("accepted_at"))
            known = mailboxes.rows.join(F.broadcast(shards), on="shard", how="left")
            problems += [lost, *_in_the_mailboxes(known, of_messages, mailboxes.from_ms, options.sweep_every_s * 1_000)]
        if store:
            problems.append(_late_receipts(spark, store))
        undone = archived.transform(begun_in_vain).where(period.has("at_ms")).count()
        return _books(of_messages.where(period.has("accepted_at")), undone, lost, problems, period)


def _books(
    of_messages: DataFrame, undone: int, lost: DataFrame | None, problems: list[DataFrame], period: Period
) -> Books:
    counts = of_messages.transform(totals).first()
    assert counts is not None
    waiting = counts["open"] - (lost.count() if lost else 0)
    of_the_period = exceptions.together(*problems).where(F.col("accepted_at").isNull() | period.has("accepted_at"))
    found = of_the_period.select(*COLUMNS).persist(StorageLevel.MEMORY_AND_DISK)
    return Books(
        {name: int(counts[name]) for name in ("accepted", "revived", *ENDS)}
        | {"waiting": int(waiting), "undone": undone},
        {row["kind"]: int(row["count"]) for row in found.groupBy("kind").count().orderBy("kind").collect()},
        found,
    )


def _check(store: Store, shards: DataFrame) -> None:
    """Raises BadInput if the store has not what was archived: the archive job marks that as undone."""
    for row in shards.select("shard", "last").collect():
        ms, n = divmod(row["last"], POSITION_OF_MS)
        if not still_has(store, row["shard"], Mark(f"{ms}-{n}", 0)):
            raise BadInput(
                f"shard {row['shard']} was archived up to {ms}-{n}, which the store has not: it is another one, or has "
                "gone back in time; run the archive job first"
            )


def _in_the_archive(events: DataFrame, of_messages: DataFrame, ttl_ms: float) -> list[DataFrame]:
    return [
        events.transform(exceptions.not_archived),
        of_messages.transform(exceptions.begun_twice),
        of_messages.transform(exceptions.acked_twice),
        of_messages.transform(exceptions.ended_twice),
        of_messages.transform(exceptions.no_accept),
        of_messages.transform(exceptions.doubled),
        _with_numbers(events, of_messages).transform(holes(ttl_ms)).transform(exceptions.hole),
    ]


def _with_numbers(events: DataFrame, of_messages: DataFrame) -> DataFrame:
    return of_messages.transform(numbered).unionByName(events.transform(blocked))


def _in_the_mailboxes(known: DataFrame, of_messages: DataFrame, now_ms: int, sweep_ms: float) -> list[DataFrame]:
    waiting = known.where(F.col("box") == "mailbox")
    return [
        waiting.join(of_messages.select(*ENTRY), on=list(ENTRY), how="left_anti").transform(exceptions.unknown),
        waiting.transform(exceptions.stuck(now_ms, sweep_ms)),
    ]


def _mailboxes(spark: SparkSession, options: argparse.Namespace, store: Store | None) -> Mailboxes | None:
    columns = ("shard", "box", *ENTRY, "id", "accepted_at", "expires_at")
    if options.mailboxes:
        rows, first_ms, last_ms = read_dump(spark, options.mailboxes)
        return Mailboxes(rows.select(*columns), first_ms - DUMP_TAKES_MS, last_ms)
    if store is None:
        return None
    from_ms = now_ms(store)
    rows = spark.read.format("relay_mailboxes").options(**options_from_environ()).load()
    # Read once and kept: a second look at a running store would see something else.
    return Mailboxes(rows.select(*columns).localCheckpoint(), from_ms, from_ms)


def _lost(spark: SparkSession, of_messages: DataFrame, mailboxes: Mailboxes, store: Store | None) -> DataFrame:
    """Messages without an end in the archive, in no mailbox, and without an end in the live log."""
    missing = (
        of_messages.transform(missing_from(mailboxes.rows))
        .transform(decidable(mailboxes.from_ms, mailboxes.until_ms, store is not None))
        .localCheckpoint()
    )
    if store is None:
        return missing.transform(exceptions.lost([]))
    shards = missing.select("shard", "last").distinct().collect()
    tails = {row["shard"]: tail(store, row["shard"], row["last"]) for row in shards}
    ended_since = _ends(spark, list(tails.values()))
    trimmed = [shard for shard, live in tails.items() if not live.is_whole]
    return missing.join(ended_since, on=list(ENTRY), how="left_anti").transform(exceptions.lost(trimmed))


def _ends(spark: SparkSession, tails: list[Tail]) -> DataFrame:
    schema = ", ".join(f"`{name}` string" for name in ENTRY)
    return spark.createDataFrame([end for live in tails for end in live.ends], schema)


def _late_receipts(spark: SparkSession, store: Store) -> DataFrame:
    rows = [("missing_receipt", *late, None) for late in late_receipts(store)]
    return spark.createDataFrame(rows, EXCEPTIONS)


def as_json(books: Books) -> Iterator[str]:
    """One object on one line, in pieces: the driver has few exceptions at a time, however many there are."""
    yield json.dumps({**books.counts, "kinds": books.kinds})[:-1] + ', "exceptions": ['
    rows = books.exceptions.orderBy(*COLUMNS).toLocalIterator() if books.kinds else ()
    for number, row in enumerate(rows):
        yield (", " if number else "") + json.dumps(row.asDict())
    yield "]}\n"


def as_text(books: Books) -> Iterator[str]:
    """The totals, the exceptions by kind, and the first of them, a line for each."""
    of = {name: f"{name} {count:,}" for name, count in books.counts.items()}
    ends = " + ".join(of[name] for name in (*ENDS, "waiting"))
    total = sum(books.kinds.values())
    verdict = f"{books.faults:,} exceptions" if books.faults else "the books balance"
    undone = f"; {of['undone']}" if books.counts["undone"] else ""
    yield f"{of['accepted']} + {of['revived']} = {ends}: {verdict}{undone}\n"
    yield from (f"{kind:<16} {count:,}\n" for kind, count in books.kinds.items())
    for row in books.exceptions.orderBy(*COLUMNS).take(SHOWN) if books.kinds else ():
        who = f"{row['tenant']}: {row['from']} → {row['to']}"
        yield visible(f"{row['kind']:<16} {who}  {row['id']}  ({row['evidence']})") + "\n"
    if total > SHOWN:
        yield f"… and {total - SHOWN:,} more; --json lists all\n"


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


def parser() -> argparse.ArgumentParser:
    own = argparse.ArgumentParser(prog="relay spark audit", description="Whether messages ended once, or wait.")
    own.add_argument(
        "--archive", required=True, type=local_folder, metavar="DIR", help="what the archive job has written"
    )
    add_period(own)
    own.add_argument("--json", action="store_true", help="one JSON object with the counts and all exceptions")
    own.add_argument("--offline", action="store_true", help="do not ask the store: what has no end counts as waiting")
    own.add_argument(
        "--mailboxes", type=local_folder, metavar="DIR", help="a dump of the mailboxes, instead of the store's own"
    )
    settings = {"--ttl-s": ("RELAY_MESSAGE_TTL_S", 604_800.0), "--sweep-every-s": ("RELAY_SWEEP_EVERY_S", 300.0)}
    for flag, (setting, default) in settings.items():
        own.add_argument(flag, type=float, default=os.environ.get(setting, default), help=f"the relay's {setting}")
    return own
