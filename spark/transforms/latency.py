"""Latency percentiles."""

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.transforms.hours import hour_of

SPANS = {  # from, to
    "waited": ("accepted_at", "first_taken_at"),
    "handled": ("last_taken_at", "ended_at"),
    "whole": ("accepted_at", "ended_at"),
}
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


def spans(lives: DataFrame) -> DataFrame:
    """A row is one message that was delivered, in the hour of its ack, with its three spans in milliseconds."""
    lengths = [
        # Instances' clocks may differ by a little: no span is below 0.
        F.greatest(F.col(end) - F.col(start), F.lit(0)).alias(name)
        for name, (start, end) in SPANS.items()
    ]
    was_delivered = F.col("acked") > 0
    return lives.where(was_delivered).select(
        "tenant", F.col("to").alias("agent"), "type", hour_of("ended_at").alias("hour"), *lengths
    )


def percentiles_by(*columns: str) -> Callable[[DataFrame], DataFrame]:
    """From spans to their percentiles (within 0.1 % of the rank): a row is one value of `columns`."""

    def aggregate(of_messages: DataFrame) -> DataFrame:
        wanted = [F.percentile_approx(name, list(QUANTILES.values()), 1_000).alias(name) for name in SPANS]
        names = [
            F.col(name)[place].alias(f"{name}_{quantile}_ms")
            for name in SPANS
            for place, quantile in enumerate(QUANTILES)
        ]
        return (
            of_messages.groupBy(*columns)
            .agg(F.count("*").alias("delivered"), *wanted)
            .select(*columns, "delivered", *names)
        )

    return aggregate
