"""Statistics of sessions and pulling consumers."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.schemas import SESSIONS

_DOINGS = ("taken", "acked", "nacked", "released", "overdue")
_TIMES = ("joined", "left")


def sessions(events: DataFrame) -> DataFrame:
    """A row is one session, or one consumer that pulls (it neither joins nor leaves), with what it did and how fast."""
    kind = F.col("kind")
    handled_ms = F.when(kind == "acked", F.greatest(F.col("at_ms") - F.col("taken_at"), F.lit(0)))
    is_of_a_session = (F.col("who") != "") & kind.isin(*_DOINGS, *_TIMES, "replaced")
    return (
        events.where(is_of_a_session)
        .groupBy("tenant", F.col("to").alias("agent"), F.col("who").alias("session"))
        .agg(
            F.timestamp_millis(F.min("at_ms")).alias("first_seen"),
            F.timestamp_millis(F.max("at_ms")).alias("last_seen"),
            *(F.timestamp_millis(F.min(F.when(kind == word, F.col("at_ms")))).alias(word) for word in _TIMES),
            F.max(kind == "replaced").alias("was_replaced"),
            *(F.count_if(kind == word).alias(word) for word in _DOINGS),
            F.percentile_approx(handled_ms, 0.5, 1_000).alias("handled_p50_ms"),
            F.percentile_approx(handled_ms, 0.99, 1_000).alias("handled_p99_ms"),
        )
        .to(SESSIONS)
    )
