"""Comparison with history: hours that differ from the same hour of other days."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

MEASURES = ("accepted", "delivered")
LEAST_DAYS = 4
LEAST_MESSAGES = 20  # an hour that has, and usually has, fewer is not judged
BOUND = 5.0
SIGMA_OF_MAD = 1.4826  # of a normal distribution


def every_hour(agent_hours: DataFrame) -> DataFrame:
    """Adds the hours in which nothing happened to an agent, between the first and the last hour of the archive."""
    ends = agent_hours.agg(F.min("hour").alias("first"), F.max("hour").alias("last"))
    hours = ends.select(F.explode(F.sequence("first", "last", F.expr("interval 1 hour"))).alias("hour"))
    agents = agent_hours.select("tenant", "agent").distinct()
    return agents.crossJoin(hours).join(agent_hours, on=["tenant", "agent", "hour"], how="left").fillna(0)


def robust_scores(hours: DataFrame) -> DataFrame:
    """A row is one measure of one agent in one hour, with how many robust deviations it is from that hour's median.

    The deviation is 1.4826 × MAD, and no less than a tenth of the median or its square root: a steady agent may vary.
    """
    hour_of_day = F.pmod(F.unix_seconds("hour") / 3_600, F.lit(24))
    same_hour = Window.partitionBy("tenant", "agent", "measure", hour_of_day)
    measured = hours.unpivot(["tenant", "agent", "hour"], list(MEASURES), "measure", "value")
    usual = measured.withColumns({"usual": F.median("value").over(same_hour), "days": F.count("*").over(same_hour)})
    mad = F.median(F.abs(F.col("value") - F.col("usual"))).over(same_hour)
    deviation = F.greatest(mad * SIGMA_OF_MAD, F.col("usual") / 10, F.sqrt("usual"), F.lit(1.0))
    return usual.withColumn("score", (F.col("value") - F.col("usual")) / deviation)


def unusual(scores: DataFrame) -> DataFrame:
    """A row is an hour with far more, or far fewer, messages than the same hour of other days."""
    is_far = F.abs("score") > BOUND
    has_history = F.col("days") >= LEAST_DAYS
    matters = F.greatest("value", "usual") >= LEAST_MESSAGES
    detail = F.format_string(
        "%.0f %s, usually %.0f at this hour", F.col("value").cast("double"), F.col("measure"), F.col("usual")
    )
    return scores.where(is_far & has_history & matters).select(
        F.concat(F.lit("unusual_"), "measure").alias("kind"),
        "tenant",
        "agent",
        "hour",
        F.col("score").alias("value"),
        F.lit(BOUND).alias("bound"),
        detail.alias("detail"),
    )
