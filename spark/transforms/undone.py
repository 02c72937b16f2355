"""What was undone, because the store went back in time."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.schemas import UNDONE
from spark.transforms.lives import BEGINNINGS, MESSAGE, POSITION_OF_MS, position


def in_force(events: DataFrame) -> DataFrame:
    """A row is one event that was not undone."""
    return events.where(~F.col("kind").startswith(UNDONE))


def begun_in_vain(events: DataFrame) -> DataFrame:
    """A row is one accept or revival that was undone."""
    return events.where(F.col("kind").isin(*(f"{UNDONE}_{kind}" for kind in BEGINNINGS)))


def not_accepted_again(events: DataFrame) -> DataFrame:
    """A row is one message whose accept was undone, and that was not accepted since; `kept` is where its log went back
    to. What was accepted under its id before that was another message."""
    accepted = events.where(F.col("kind") == f"{UNDONE}_accepted").select(
        "shard", *MESSAGE, "entry", F.col("at_ms").alias("accepted_at"), position().alias("at")
    )
    undone = accepted.join(F.broadcast(_spans(events)), on="shard", how="inner").where(
        (F.col("kept_at") < F.col("at")) & (F.col("at") <= F.col("until"))
    )
    # A shard that goes back again can go back to before the last time.
    first_kept = undone.groupBy("shard", *MESSAGE, "entry", "accepted_at", "at").agg(
        F.min_by("kept", "kept_at").alias("kept"), F.min("kept_at").alias("kept_at")
    )
    told = F.max_by(F.struct("shard", "entry", "accepted_at", "kept", "kept_at"), F.struct("kept_at", "at"))
    lost = first_kept.groupBy(*MESSAGE).agg(told.alias("told")).select(*MESSAGE, "told.*").alias("lost")
    again = events.where(F.col("kind") == "accepted").select(*MESSAGE, position().alias("at")).alias("again")
    is_same = [F.col(f"lost.{name}") == F.col(f"again.{name}") for name in MESSAGE]
    return lost.join(again, on=[*is_same, F.col("again.at") > F.col("lost.kept_at")], how="left_anti")


def _spans(events: DataFrame) -> DataFrame:
    """A row is one time that a log went back: to which entry, and from where."""
    return events.where(F.col("kind") == UNDONE).select(
        "shard", F.col("entry").alias("kept"), _place_of("entry").alias("kept_at"), position().alias("until")
    )


def _place_of(id: str) -> Column:
    ms, n = (F.split_part(F.col(id), F.lit("-"), F.lit(part)).cast("long") for part in (1, 2))
    return ms * F.lit(POSITION_OF_MS) + n
