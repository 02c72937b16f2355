"""The books: accepted, ended and waiting messages."""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark.transforms.lives import ENDS, ENTRY, entry_ms, position


def edges(events: DataFrame) -> DataFrame:
    """A row is one shard, with the first and the last position that is archived.

    A shard that begins with a gap was archived before it: since when nobody knows, so since the first of all shards.
    """
    shards = events.groupBy("shard").agg(
        F.min(F.struct(position(), "place", "kind")).getField("kind").alias("begins_with"),
        F.min("stream_ms").alias("own_first_ms"),
        F.max("stream_ms").alias("last_ms"),
        F.max(position()).alias("last"),
    )
    of_all = F.min("own_first_ms").over(Window.partitionBy())
    first_ms = F.when(F.col("begins_with") == "lost", of_all).otherwise(F.col("own_first_ms"))
    return shards.select("shard", first_ms.alias("first_ms"), "last_ms", "last")


def has_begun() -> Column:
    return F.col("began").isNotNull()


def has_ended() -> Column:
    return F.col("ended").isNotNull()


def ended_how() -> Column:
    """The end that counts: a message that ended in several ways is counted once, and is an exception."""
    return F.coalesce(*(F.when(F.col(how) > 0, F.lit(how)) for how in ENDS))


def totals(lives: DataFrame) -> DataFrame:
    """One row: how many lives began, and how many of those ended in each way or not at all."""
    begun = lives.where(has_begun())
    is_accepted = F.col("accepted") > 0
    return begun.agg(
        F.count_if(is_accepted).alias("accepted"),
        F.count_if(~is_accepted).alias("revived"),
        *(F.count_if(ended_how() == how).alias(how) for how in ENDS),
        F.count_if(~has_ended()).alias("open"),
    )


def missing_from(mailboxes: DataFrame) -> Callable[[DataFrame], DataFrame]:
    """From lives to those that have no end in the archive and do not lie in a mailbox either."""

    def leave_out(lives: DataFrame) -> DataFrame:
        is_open = has_begun() & ~has_ended()
        waiting = mailboxes.where(F.col("box") == "mailbox").select(*ENTRY)
        return lives.where(is_open).join(waiting, on=list(ENTRY), how="left_anti")

    return leave_out


def decidable(dumped_from_ms: int, dumped_until_ms: int, is_live: bool) -> Callable[[DataFrame], DataFrame]:
    """Keeps the lives that a dump must have: they began before it, and the log is known up to the dump's end.

    With a running store the log is known up to now; without, up to the last archived position of the shard.
    """
    began_before = entry_ms() < dumped_from_ms
    log_reaches = F.lit(is_live) | (F.col("last_ms") > dumped_until_ms)
    return lambda candidates: candidates.where(began_before & log_reaches)
