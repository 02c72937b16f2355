"""Anomalies for operators: one transform per kind, each with its thresholds."""

from collections.abc import Callable
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark.schemas import ANOMALIES, EPISODES

MANY = 20  # messages in an hour below which nothing is said
FAILING_SHARE = 0.1
FAILING_LEAST = 5
OLDEST_MS = 3_600_000


def backlog_growing(agent_hours: DataFrame) -> DataFrame:
    """A row is an hour in which an agent got many messages and acked none."""
    is_silent = (F.col("accepted") >= MANY) & (F.col("delivered") == 0)
    return agent_hours.where(is_silent).transform(
        _named("backlog_growing", F.col("accepted"), F.lit(MANY), "%.0f accepted, none acked")
    )


def dying(agent_hours: DataFrame) -> DataFrame:
    """A row is an hour in which at least a tenth of what ended for an agent went to its dead-letter box."""
    return agent_hours.where(_is_failing("dead")).transform(
        _named("dying", _share_of_ends("dead"), F.lit(FAILING_SHARE), "%.0f %% of what ended was dead", 100)
    )


def expiring(agent_hours: DataFrame) -> DataFrame:
    """A row is an hour in which at least a tenth of what ended for an agent had expired."""
    return agent_hours.where(_is_failing("expired")).transform(
        _named("expiring", _share_of_ends("expired"), F.lit(FAILING_SHARE), "%.0f %% of what ended had expired", 100)
    )


def redelivery_storm(agent_hours: DataFrame) -> DataFrame:
    """A row is an hour in which an agent got more redeliveries than it acked messages."""
    is_storm = (F.col("redelivered") >= MANY) & (F.col("redelivered") > F.col("delivered"))
    return agent_hours.where(is_storm).transform(
        _named("redelivery_storm", F.col("redelivered"), F.col("delivered"), "%.0f redeliveries, more than acks")
    )


def too_old(depth: DataFrame) -> DataFrame:
    """A row is an hour at whose end the oldest message of an agent had waited for more than an hour."""
    return depth.where(F.col("oldest_ms") > OLDEST_MS).transform(
        _named("too_old", F.col("oldest_ms"), F.lit(OLDEST_MS), "the oldest had waited %.1f h", 1 / 3_600_000)
    )


def together(*parts: DataFrame) -> DataFrame:
    """A row is one anomaly of any kind."""
    return reduce(DataFrame.unionByName, parts).to(ANOMALIES)


def episodes(anomalies: DataFrame) -> DataFrame:
    """A row is one unbroken run of hours in which the same was wrong with the same agent, told by its worst hour."""
    of_an_agent = Window.partitionBy("kind", "tenant", "agent").orderBy("hour")
    since_last = F.unix_seconds("hour") - F.unix_seconds(F.lag("hour").over(of_an_agent))
    is_new = F.coalesce(since_last > 3_600, F.lit(True)).cast("int")
    return (
        anomalies.withColumn("is_new", is_new)
        .withColumn("run", F.sum("is_new").over(of_an_agent))
        .groupBy("kind", "tenant", "agent", "run")
        .agg(
            F.min("hour").alias("first_hour"),
            F.max("hour").alias("last_hour"),
            F.count("*").alias("hours"),
            F.max_by("detail", F.abs("value")).alias("worst"),
        )
        .to(EPISODES)
    )


def _share_of_ends(how: str) -> Column:
    ended = F.col("delivered") + F.col("expired") + F.col("dead") + F.col("cancelled")
    return F.col(how) / F.greatest(ended, F.lit(1))


def _is_failing(how: str) -> Column:
    return (F.col(how) >= FAILING_LEAST) & (_share_of_ends(how) >= FAILING_SHARE)


def _named(kind: str, value: Column, bound: Column, detail: str, factor: float = 1) -> Callable[[DataFrame], DataFrame]:
    def name(rows: DataFrame) -> DataFrame:
        return rows.select(
            F.lit(kind).alias("kind"),
            "tenant",
            "agent",
            "hour",
            value.cast("double").alias("value"),
            bound.cast("double").alias("bound"),
            F.format_string(detail, value.cast("double") * factor).alias("detail"),
        )

    return name
