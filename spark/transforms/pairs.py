"""Traffic between pairs of agents."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.schemas import PAIRS


def pairs(lives: DataFrame) -> DataFrame:
    """A row is one sender and one recipient, with the outcomes of the messages between them."""
    return (
        lives.where(F.col("accepted") > 0)
        .groupBy("tenant", "from", "to")
        .agg(
            F.count("*").alias("accepted"),
            F.sum("bytes").alias("bytes"),
            F.count_if(F.col("acked") > 0).alias("delivered"),
            F.count_if(F.col("expired") > 0).alias("expired"),
            F.count_if(F.col("dead") > 0).alias("dead"),
        )
        .to(PAIRS)
    )
