"""The Spark session of the jobs: all cores of this machine, unless spark-submit says otherwise."""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from spark.sources.event_ranges import RelayEventRanges
from spark.sources.events import RelayEvents
from spark.sources.mailboxes import RelayMailboxes

_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",  # a source that takes filters cannot be read without
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.ui.showConsoleProgress": "false",
}
_ON_THIS_MACHINE = {
    "spark.master": "local[*]",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "4",  # of Spark's 200, nearly all would be empty here
}


def spark_session(name: str) -> SparkSession:
    """A session that knows the relay's data sources and in which times are UTC."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("LOG4J_CONFIGURATION_FILE", str(Path(__file__).with_name("log4j2.properties")))
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit has started the JVM, with settings of its own
    settings = _SETTINGS if submitted else _SETTINGS | _ON_THIS_MACHINE
    builder = SparkSession.Builder().appName(f"relay {name}")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    for source in (RelayEvents, RelayEventRanges, RelayMailboxes):
        session.dataSource.register(source)
    return session
