"""Waiting messages over time."""

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.schemas import DEPTH
from spark.transforms.hours import HOUR_MS


def depth(since_ms: int, until_ms: int) -> Callable[[DataFrame], DataFrame]:
    """From lives to depths: a row is one agent at the end of one hour at which something waited for it.

    Of hours before `since_ms` too little is known. What has no end waits until `until_ms`, which is also the end of the
    last, unfinished hour.
    """

    def count(lives: DataFrame) -> DataFrame:
        first = F.floor(F.greatest(F.col("accepted_at"), F.lit(since_ms)) / HOUR_MS)
        last = F.floor((F.coalesce("ended_at", F.lit(until_ms)) - 1) / HOUR_MS)
        still_waits = F.col("ended_at").isNull()
        # At the end of its last hour it is gone, unless it has not ended.
        until = F.when(still_waits, last).otherwise(last - 1)
        crosses_an_hour = F.col("accepted_at").isNotNull() & (until >= first)
        hour_numbers = F.explode(F.sequence(first, until)).alias("hour_number")
        at_hours = lives.where(crosses_an_hour).select(
            "tenant", F.col("to").alias("agent"), "accepted_at", hour_numbers
        )
        hour_end = F.least((F.col("hour_number") + 1) * HOUR_MS, F.lit(until_ms))
        return (
            at_hours.groupBy("tenant", "agent", "hour_number")
            .agg(F.count("*").alias("depth"), F.min("accepted_at").alias("oldest_at"))
            .select(
                "tenant",
                "agent",
                F.timestamp_millis(F.col("hour_number") * HOUR_MS).alias("hour"),
                "depth",
                (hour_end - F.col("oldest_at")).alias("oldest_ms"),
            )
            .to(DEPTH)
        )

    return count
