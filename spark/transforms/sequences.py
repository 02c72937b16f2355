"""Sequence numbers: finds holes in the threads between two agents."""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark.transforms.books import has_begun
from spark.transforms.lives import entry_ms

THREAD = ("tenant", "from", "to", "thread")
GENERATION = 10**12  # where numbers go on each time that a shard has gone back in time


def numbered(lives: DataFrame) -> DataFrame:
    """A row is one message that got its number after the archive began; a revived one has its number from before.

    A message with only its end in the archive counts too: it has its number, so it leaves no hole.
    """
    began_here = entry_ms() > F.col("first_ms")
    got_a_number = (F.col("accepted") > 0) | (~has_begun() & began_here)
    return lives.where(got_a_number).select(*THREAD, "id", "seq", "accepted_at", entry_ms().alias("at"))


def blocked(events: DataFrame) -> DataFrame:
    """A row is one message of a blocked sender: nothing was stored, but it got its number."""
    is_blocked = (F.col("kind") == "refused") & (F.col("reason") == "blocked") & F.col("seq").isNotNull()
    return events.where(is_blocked).select(
        *THREAD, "id", "seq", F.col("at_ms").alias("accepted_at"), entry_ms().alias("at")
    )


def holes(ttl_ms: float) -> Callable[[DataFrame], DataFrame]:
    """From numbered messages to holes: a row is the message behind one, with the number `before` it.

    A thread that was idle for longer than the TTL may go on or start again at 1. Numbers are compared in their own
    order within a stretch without such a pause: lanes need not agree about time. What is first in the archive may have
    any number. After the store went back in time, a thread goes on behind the next multiple of GENERATION.
    """
    thread = Window.partitionBy(*THREAD).orderBy("at", "seq")
    stretch = Window.partitionBy(*THREAD, "stretch").orderBy("seq")

    def find(messages: DataFrame) -> DataFrame:
        after_pause = F.coalesce(F.col("at") - F.lag("at").over(thread) > ttl_ms, F.lit(False))
        paused = messages.select(
            "*", after_pause.alias("after_pause"), F.lag("seq").over(thread).alias("before_pause")
        ).withColumn("stretch", F.sum(F.col("after_pause").cast("int")).over(thread))
        before = F.coalesce(F.lag("seq").over(stretch), F.when(F.col("after_pause"), F.col("before_pause")))
        goes_on = F.col("seq") <= F.col("before") + 1
        starts_again_badly = (
            F.col("after_pause") & goes_on & ~F.col("seq").isin(_before_first() + 1, F.col("before") + 1)
        )
        told = paused.withColumn("before", F.when(before.isNotNull(), F.greatest(before, _before_first())))
        return told.where(~goes_on | starts_again_badly)

    return find


def _before_first() -> Column:
    """The number before the first of a thread that begins now."""
    return F.floor(F.col("seq") / GENERATION) * GENERATION
