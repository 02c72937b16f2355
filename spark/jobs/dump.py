"""Dump: writes every waiting or dead message, with its content, to Parquet. `relay spark replay` restores them."""

import argparse
import shutil
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from spark.errors import BadInput, check_output, local_folder
from spark.session import spark_session
from spark.sources.store import options_from_environ


def run(spark: SparkSession, options: dict[str, str], folder: Path) -> int:
    """Writes folder/mailboxes; a file holds whole boxes in their order. Returns how many messages there are.

    Raises BadInput if there is a dump already. A dump that fails leaves nothing behind.
    """
    target = folder.absolute() / "mailboxes"
    if target.exists():
        raise BadInput(f"{target} is there already; a dump never replaces another")
    source = spark.read.format("relay_mailboxes").option("tasks", spark.sparkContext.defaultParallelism)
    try:
        source.options(**options).load().write.parquet(str(target))
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise
    return spark.read.parquet(str(target)).count()


def parser() -> argparse.ArgumentParser:
    own = argparse.ArgumentParser(prog="relay spark dump", description=__doc__)
    own.add_argument("--out", required=True, type=local_folder, help="the folder of the dump")
    return own


def main(argv: list[str]) -> int:
    arguments = parser().parse_args(argv)
    check_output(arguments.out)
    spark = spark_session("dump")
    try:
        count = run(spark, options_from_environ(), arguments.out)
    finally:
        spark.stop()
    print(f"dumped {count} messages into {arguments.out}", file=sys.stderr)
    return 0
