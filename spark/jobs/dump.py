"""Dump: every message that waits or is dead, with its content, into Parquet; `relay spark replay` brings them back."""

import argparse
import sys

from pyspark.sql import SparkSession

from spark.folders import Folders
from spark.session import spark_session
from spark.store import StoreError, options_from_environ


def run(spark: SparkSession, options: dict[str, str], folder: str) -> int:
    """Writes folder/mailboxes; a file holds whole boxes in their order. Returns how many messages there are.

    Raises StoreError if there is a dump already.
    """
    target = f"{folder.rstrip('/')}/mailboxes"
    if Folders(spark, target).exists(target):
        raise StoreError(f"{target} is there already; a dump never replaces another")
    source = spark.read.format("relay_mailboxes").option("tasks", spark.sparkContext.defaultParallelism)
    source.options(**options).load().write.parquet(target)
    return spark.read.parquet(target).count()


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="relay spark dump", description=__doc__)
    parser.add_argument("--out", required=True, help="the folder of the dump")
    arguments = parser.parse_args(argv)
    spark = spark_session("dump")
    try:
        count = run(spark, options_from_environ(), arguments.out)
    finally:
        spark.stop()
    print(f"dumped {count} messages into {arguments.out}", file=sys.stderr)
    return 0
