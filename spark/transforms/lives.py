"""From events to lives: what happened to each message."""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

MESSAGE = ("tenant", "to", "from", "id")
ENTRY = ("tenant", "to", "from", "entry")  # enough to tell lives apart: a handle is unique in its mailbox
LIFE = (*MESSAGE, "entry")
BEGINNINGS = ("accepted", "revived")
ENDS = ("acked", "expired", "dead", "cancelled")
FAILURES = ("nacked", "overdue")
STEPS = ("taken", *FAILURES)
ENDS_OF_DELIVERY = ("acked", "nacked", "released", "overdue", "expired")


POSITION_OF_MS = 1 << 20  # more entries than a log can get in one millisecond


def position() -> Column:
    """Where an event stands in its shard's log, as one number that sorts."""
    return F.col("stream_ms") * F.lit(POSITION_OF_MS) + F.col("stream_n")


def entry_ms() -> Column:
    """The server's time at which an entry was put into its mailbox: its handle begins with it."""
    return F.substring_index("entry", "-", 1).cast("long")


def with_first_deliveries(events: DataFrame) -> DataFrame:
    """Adds the deliveries that have no event of their own: whatever ends a first one tells when it was taken."""
    kind = F.col("kind")
    ends_a_first = kind.isin(*ENDS_OF_DELIVERY) & (F.col("attempt") == 1) & F.col("taken_at").isNotNull()
    # A pending entry's age and an instance's clock may differ by a moment: nothing is taken before it came.
    taken = events.where(ends_a_first).withColumns(
        {"kind": F.lit("taken"), "at_ms": F.greatest("taken_at", entry_ms()), "reason": F.lit(None).cast("string")}
    )
    return events.unionByName(taken)


def with_types(lives: DataFrame) -> Callable[[DataFrame], DataFrame]:
    """Gives every event of a message the type that only the first event of its life has."""
    known = lives.select(*ENTRY, F.col("type").alias("known_type"))

    def add(events: DataFrame) -> DataFrame:
        typed = F.coalesce(F.nullif("type", F.lit("")), "known_type", "type")
        return events.join(known, on=list(ENTRY), how="left").withColumn("type", typed).drop("known_type")

    return add


def lives(events: DataFrame) -> DataFrame:
    """A row is one life of a message: from its accept, or its revival, to its end, in one entry of a mailbox.

    `began` and `ended` are positions in the log, null while the archive does not have them. A message that is revived,
    or whose id is accepted again after the dedup window, has several lives.
    """
    kind = F.col("kind")
    begins, ends, is_taken = kind.isin(*BEGINNINGS), kind.isin(*ENDS), kind == "taken"
    counts = [F.count_if(kind == word).alias(word) for word in (*BEGINNINGS, *ENDS, *STEPS)]
    return (
        events.where(kind.isin(*BEGINNINGS, *ENDS, *STEPS))
        .groupBy(*LIFE, "shard")
        .agg(
            F.max("seq").alias("seq"),
            F.max("bytes").alias("bytes"),
            F.max("type").alias("type"),
            F.max("thread").alias("thread"),
            F.coalesce(F.max(F.when(begins, F.col("at_ms"))), F.max(entry_ms())).alias("accepted_at"),
            F.min(F.when(begins, position())).alias("began"),
            F.min(F.when(ends, position())).alias("ended"),
            F.min(F.when(is_taken, F.col("at_ms"))).alias("first_taken_at"),
            F.max(F.when(kind == "acked", F.col("taken_at"))).alias("last_taken_at"),
            F.min(F.when(ends, F.col("at_ms"))).alias("ended_at"),
            *counts,
        )
    )


def beginnings_and_ends(events: DataFrame) -> DataFrame:
    """The events that books are kept of; a row is one event."""
    return events.where(F.col("kind").isin(*BEGINNINGS, *ENDS))
