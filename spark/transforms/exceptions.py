"""Exceptions to the balance of the books: one transform per kind, each with its evidence."""

from collections.abc import Callable
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark.schemas import EXCEPTIONS
from spark.transforms.books import has_begun
from spark.transforms.lives import ENDS, MESSAGE, entry_ms


def lost(trimmed_shards: list[int]) -> Callable[[DataFrame], DataFrame]:
    """From what no mailbox has to exceptions; of some shards the log behind the archive is not whole."""
    told = F.lit("no end is known, and it is in no mailbox")
    is_trimmed = F.col("shard").isin(trimmed_shards)
    caveat = F.when(is_trimmed, "the log was trimmed before it was archived: its end may have been there")
    return _named("lost", told, caveat, _entry())


def begun_twice(lives: DataFrame) -> DataFrame:
    """A row is an entry that was put into its mailbox by two events."""
    beginnings = F.col("accepted") + F.col("revived")
    told = F.format_string("%d beginnings", beginnings)
    return lives.where(beginnings > 1).transform(_named("begun_twice", told, _entry()))


def acked_twice(lives: DataFrame) -> DataFrame:
    """A row is an entry that was acked more than once."""
    return lives.where(F.col("acked") > 1).transform(
        _named("acked_twice", F.format_string("%d acks", "acked"), _entry())
    )


def ended_twice(lives: DataFrame) -> DataFrame:
    """A row is an entry that ended in more than one way, or in one other than an ack more than once."""
    ends = reduce(Column.__add__, (F.col(how) for how in ENDS))
    told = F.concat_ws(", ", *(F.when(F.col(how) > 0, F.format_string(f"{how} %d×", how)) for how in ENDS))
    return lives.where((ends > 1) & (F.col("acked") != ends)).transform(_named("ended_twice", told, _entry()))


def no_accept(lives: DataFrame) -> DataFrame:
    """A row is an entry that ended, but that nobody put into its mailbox, though the archive had begun by then."""
    archive_had_begun = entry_ms() > F.col("first_ms")
    told = F.format_string("neither accepted nor revived, though the archive begins at %d", "first_ms")
    return lives.where(~has_begun() & archive_had_begun).transform(_named("no_accept", told, _entry()))


def doubled(lives: DataFrame) -> DataFrame:
    """A row is a message that was put into its mailbox while it was there already."""
    of_a_message = Window.partitionBy(*MESSAGE).orderBy("began")
    earlier = lives.where(has_begun()).select(
        "*",
        F.lag("entry").over(of_a_message).alias("earlier_entry"),
        F.lag(F.coalesce("ended", F.lit(2**62))).over(of_a_message).alias("earlier_ended"),
    )
    told = F.format_string("it was still there as entry %s", "earlier_entry")
    return earlier.where(F.col("earlier_ended") > F.col("began")).transform(_named("doubled", told, _entry()))


def not_archived(events: DataFrame) -> DataFrame:
    """A row is a place in the archive before which entries of the log are missing: nobody knows what was in them."""
    told = F.format_string(
        "shard %d: %s entries before %d-%d were trimmed unread", "shard", "reason", "stream_ms", "stream_n"
    )
    at_that_time = events.where(F.col("kind") == "lost").withColumn("accepted_at", F.col("at_ms"))
    return at_that_time.transform(_named("not_archived", told))


def hole(holes: DataFrame) -> DataFrame:
    """A row is the message behind a hole in the numbers of its thread."""
    told = F.format_string("thread '%s': number %d comes after %d", "thread", "seq", "before")
    return holes.transform(_named("hole", told))


def unknown(mailboxes: DataFrame) -> DataFrame:
    """A row is a message in a mailbox that came after the archive began, but is not in the archive."""
    is_archived_time = (entry_ms() > F.col("first_ms")) & (entry_ms() < F.col("last_ms"))
    return mailboxes.where(is_archived_time).transform(
        _named("unknown", F.lit("it waits in the mailbox, but no event put it there"), _entry())
    )


def stuck(now_ms: int, sweep_ms: float) -> Callable[[DataFrame], DataFrame]:
    """From mailboxes to messages whose time was over more than a sweep ago, and which are still there."""
    told = F.format_string("expired at %d, still there at %d", F.col("expires_at"), F.lit(now_ms))
    is_overdue = F.col("expires_at") + sweep_ms < now_ms
    return lambda mailboxes: mailboxes.where(is_overdue).transform(_named("stuck", told, _entry()))


def missing(messages: DataFrame) -> DataFrame:
    """A row is a message that was accepted, undone, and not accepted again. The books balance without it."""
    told = F.format_string("its shard went back in time to %s, and it was not accepted again", "kept")
    return messages.transform(_named("missing", told, _entry()))


def together(*parts: DataFrame) -> DataFrame:
    """A row is one exception of any kind."""
    return reduce(DataFrame.unionByName, parts).to(EXCEPTIONS)


def _entry() -> Column:
    return F.format_string("entry %s of shard %d, accepted at %d", "entry", "shard", "accepted_at")


def _named(kind: str, *evidence: Column) -> Callable[[DataFrame], DataFrame]:
    return lambda rows: rows.select(
        F.lit(kind).alias("kind"), *MESSAGE, F.concat_ws("; ", *evidence).alias("evidence"), "accepted_at"
    )
