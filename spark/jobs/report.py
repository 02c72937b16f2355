"""report: what happened in a period, as Parquet tables and one HTML page.

python -m spark report --archive DIR --out DIR [--since TIME] [--until TIME]
"""

import argparse
import sys
from pathlib import Path

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spark.archive.reader import read_events
from spark.errors import BadInput, check_output, local_folder
from spark.period import Period, add_period
from spark.report.document import document
from spark.report.findings import gather
from spark.schemas import LATENCIES, LATENCY, LATENCY_OF_AGENTS, LATENCY_OF_HOURS
from spark.session import spark_session
from spark.transforms import anomalies
from spark.transforms.depth import depth
from spark.transforms.history import every_hour, robust_scores, unusual
from spark.transforms.hours import hourly_counts, summed_by, with_redelivered
from spark.transforms.latency import percentiles_by, spans
from spark.transforms.lives import lives, with_first_deliveries, with_types
from spark.transforms.pairs import pairs
from spark.transforms.sessions import sessions
from spark.transforms.undone import in_force

PAGE = "report.html"
KEPT = StorageLevel.MEMORY_AND_DISK


def main(argv: list[str]) -> int:
    options = parser().parse_args(argv)
    report(options.archive, options.out, Period.parse(options.since, options.until))
    return 0


def report(archive: Path, out: Path, period: Period) -> None:
    """Writes every table into a folder of its name under `out`, and the page beside them; replaces what was there."""
    spark = spark_session("report")
    events = read_events(spark, archive, period).transform(in_force).where(period.has("at_ms"))
    bounds = events.agg(F.min("at_ms").alias("first_ms"), F.max("at_ms").alias("last_ms")).first()
    if bounds is None or bounds.last_ms is None:
        raise BadInput(f"--archive {archive}: there are no events in this period")
    check_output(out)
    made = tables(events, bounds.first_ms, bounds.last_ms + 1)
    for name, table in made.items():
        _say(f"report: {name}")
        table.repartition(1).write.mode("overwrite").option("compression", "zstd").parquet(str(out / name))
    written = {name: spark.read.schema(table.schema).parquet(str(out / name)) for name, table in made.items()}
    (out / PAGE).write_text(document(gather(written, bounds.first_ms, bounds.last_ms)), encoding="utf-8")
    _say(f"report: {out / PAGE}")


def tables(events: DataFrame, since_ms: int, until_ms: int) -> dict[str, DataFrame]:
    """Every table of the report by its name, in the order in which they are made."""
    events = events.transform(with_first_deliveries)
    of_messages = events.transform(lives).persist(KEPT)
    counts = events.transform(with_types(of_messages)).transform(hourly_counts)
    hours = counts.transform(with_redelivered(of_messages)).persist(KEPT)
    took = of_messages.transform(spans)
    depths = of_messages.transform(depth(since_ms, until_ms)).persist(KEPT)
    odd = _anomalies(hours.transform(summed_by("tenant", "agent", "hour")), depths).persist(KEPT)
    return {
        "hours": hours,
        "latency": took.transform(percentiles_by("tenant", "agent", "type", "hour")).to(LATENCY),
        "latency_of_all": took.transform(percentiles_by()).to(StructType(LATENCIES)),
        "latency_of_agents": took.transform(percentiles_by("tenant", "agent")).to(LATENCY_OF_AGENTS),
        "latency_of_hours": took.transform(percentiles_by("hour")).to(LATENCY_OF_HOURS),
        "depth": depths,
        "sessions": events.transform(sessions),
        "pairs": of_messages.transform(pairs),
        "anomalies": odd,
        "episodes": odd.transform(anomalies.episodes),
    }


def _anomalies(agent_hours: DataFrame, depths: DataFrame) -> DataFrame:
    return anomalies.together(
        agent_hours.transform(anomalies.backlog_growing),
        agent_hours.transform(anomalies.dying),
        agent_hours.transform(anomalies.expiring),
        agent_hours.transform(anomalies.redelivery_storm),
        depths.transform(anomalies.too_old),
        agent_hours.transform(every_hour).transform(robust_scores).transform(unusual),
    )


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


def parser() -> argparse.ArgumentParser:
    own = argparse.ArgumentParser(
        prog="relay spark report", description="What happened: Parquet tables and an HTML page."
    )
    own.add_argument(
        "--archive", required=True, type=local_folder, metavar="DIR", help="what the archive job has written"
    )
    own.add_argument("--out", required=True, type=local_folder, metavar="DIR", help="of the tables and report.html")
    add_period(own)
    return own
