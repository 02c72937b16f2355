"""The version of the events, in every file that holds some."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.schemas import EVENT_SCHEMA_VERSION

KEY = "relay_events"


def versioned(events: DataFrame) -> DataFrame:
    """The same rows; their Parquet files say the version in Spark's own metadata, beside the column `kind`."""
    kind = F.col("kind").alias("kind", metadata={KEY: EVENT_SCHEMA_VERSION})
    return events.withColumn("kind", kind)
