"""Counts of events by hour."""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.schemas import HOURS

HOUR_MS = 3_600_000
BY_HOUR = ("tenant", "agent", "type", "hour")
COUNTS = ("accepted", "delivered", "expired", "dead", "cancelled", "refused", "duplicate", "taken")
_EVENT_OF = {"delivered": "acked"}  # where a count has another name than its event


def hour_of(at_ms: str) -> Column:
    """The hour in which a time lies, whatever the session's time zone."""
    return F.timestamp_millis(F.floor(F.col(at_ms) / HOUR_MS) * HOUR_MS)


def hourly_counts(events: DataFrame) -> DataFrame:
    """A row is one hour of one type of messages to one agent, with how often each thing happened to them."""
    kind = F.col("kind")
    counts = [F.count_if(kind == _EVENT_OF.get(name, name)).alias(name) for name in COUNTS]
    accepted_bytes = F.sum(F.when(kind == "accepted", F.col("bytes")).otherwise(0)).alias("bytes")
    return (
        events.where(kind.isin(*(_EVENT_OF.get(name, name) for name in COUNTS)))
        .groupBy("tenant", F.col("to").alias("agent"), "type", hour_of("at_ms").alias("hour"))
        .agg(*counts, accepted_bytes)
    )


def with_redelivered(lives: DataFrame) -> Callable[[DataFrame], DataFrame]:
    """Adds to hourly counts how many deliveries were not the first of their message."""

    def add(counts: DataFrame) -> DataFrame:
        first_times = (
            lives.where(F.col("first_taken_at").isNotNull())
            .groupBy("tenant", F.col("to").alias("agent"), "type", hour_of("first_taken_at").alias("hour"))
            .agg(F.count("*").alias("first_times"))
        )
        redelivered = F.col("taken") - F.coalesce("first_times", F.lit(0))
        return counts.join(first_times, on=list(BY_HOUR), how="left").withColumn("redelivered", redelivered).to(HOURS)

    return add


def summed_by(*columns: str) -> Callable[[DataFrame], DataFrame]:
    """Adds hours up: a row is one value of `columns`."""

    def add_up(hours: DataFrame) -> DataFrame:
        sums = [F.sum(name).alias(name) for name in (*COUNTS, "redelivered", "bytes")]
        return hours.groupBy(*columns).agg(*sums)

    return add_up
