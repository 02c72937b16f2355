"""The pipeline's aggregations in Spark beside DuckDB, on the same Parquet files.

python -m bench.pipeline_queries
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
from pyspark.sql import DataFrame, SparkSession

from bench.pipeline_archive import make_archive
from spark.archive.reader import read_events
from spark.period import Period
from spark.session import spark_session
from spark.transforms import exceptions
from spark.transforms.books import edges, totals
from spark.transforms.hours import hourly_counts
from spark.transforms.latency import percentiles_by, spans
from spark.transforms.lives import beginnings_and_ends, lives, with_first_deliveries, with_types
from spark.transforms.sequences import holes, numbered

MESSAGES = {"2 million": 960_000, "8 million": 3_840_000}
AGENTS = 50
TTL_MS = 7 * 86_400_000
LIFE = 'tenant, "to", "from", id, entry, shard'
ACCEPTED_AT = "split_part(entry, '-', 1)::bigint"
ENDS_A_FIRST = "attempt = 1 and taken_at is not null and kind in ('acked', 'nacked', 'released', 'overdue', 'expired')"


def counts_an_hour(events: DataFrame) -> DataFrame:
    known = events.transform(with_first_deliveries)
    return known.transform(with_types(known.transform(lives))).transform(hourly_counts)


def percentiles(events: DataFrame) -> DataFrame:
    return (
        events.transform(with_first_deliveries)
        .transform(lives)
        .transform(spans)
        .transform(percentiles_by("tenant", "agent", "type", "hour"))
    )


def balance(events: DataFrame) -> DataFrame:
    return events.transform(beginnings_and_ends).transform(lives).transform(totals)


def gaps(events: DataFrame) -> DataFrame:
    known = events.transform(beginnings_and_ends).transform(lives).join(events.transform(edges), on="shard", how="left")
    return known.transform(numbered).transform(holes(TTL_MS)).transform(exceptions.hole)


# The same questions in SQL; `events` is the archive.
COUNTS_AN_HOUR = f"""
    with known as (
      select tenant, "to", entry, kind, at_ms, bytes from events
      union all
      select tenant, "to", entry, 'taken', taken_at, null from events where {ENDS_A_FIRST}),
    types as (select tenant, "to", entry, type from events where kind = 'accepted')
    select tenant, "to", type, at_ms // 3600000 as hour,
      count(*) filter (kind = 'accepted'), count(*) filter (kind = 'acked'), count(*) filter (kind = 'expired'),
      count(*) filter (kind = 'dead'), count(*) filter (kind = 'cancelled'), count(*) filter (kind = 'refused'),
      count(*) filter (kind = 'duplicate'), count(*) filter (kind = 'taken'),
      sum(bytes) filter (kind = 'accepted')
    from known left join types using (tenant, "to", entry)
    where kind not in ('joined', 'left', 'replaced', 'swept') group by all"""
PERCENTILES = f"""
    with lives as (
      select {LIFE}, max(type) as type, {ACCEPTED_AT} as accepted_at,
        least(min(at_ms) filter (kind = 'taken'), min(taken_at) filter ({ENDS_A_FIRST})) as first_taken_at,
        max(taken_at) filter (kind = 'acked') as last_taken_at, min(at_ms) filter (kind = 'acked') as ended_at
      from events where entry <> '' group by all)
    select tenant, "to", type, ended_at // 3600000 as hour, count(*),
      approx_quantile(first_taken_at - accepted_at, [0.5, 0.9, 0.99, 1.0]),
      approx_quantile(ended_at - last_taken_at, [0.5, 0.9, 0.99, 1.0]),
      approx_quantile(ended_at - accepted_at, [0.5, 0.9, 0.99, 1.0])
    from lives where ended_at is not null group by all"""
BALANCE = f"""
    with lives as (
      select {LIFE}, max(seq) as seq, count(*) filter (kind = 'accepted') as accepted,
        count(*) filter (kind = 'acked') as acked, count(*) filter (kind = 'expired') as expired,
        count(*) filter (kind = 'dead') as dead, count(*) filter (kind = 'cancelled') as cancelled
      from events where kind in ('accepted', 'revived', 'acked', 'expired', 'dead', 'cancelled') group by all)
    select count(*) filter (accepted > 0), count(*) filter (acked > 0), count(*) filter (expired > 0),
      count(*) filter (dead > 0), count(*) filter (cancelled > 0),
      count(*) filter (acked + expired + dead + cancelled = 0)
    from lives"""
GAPS = f"""
    with lives as (
      select {LIFE}, max(thread) as thread, max(seq) as seq, {ACCEPTED_AT} as began_ms from events
      where kind in ('accepted', 'acked', 'expired', 'dead', 'cancelled') group by all),
    paused as (select *, began_ms - lag(began_ms) over numbers > {TTL_MS} as after_pause from lives
      window numbers as (partition by tenant, "from", "to", thread order by began_ms, seq)),
    stretches as (select *, sum(coalesce(after_pause, false)::int) over
      (partition by tenant, "from", "to", thread order by began_ms, seq) as stretch from paused),
    counted as (select *, lag(seq) over
      (partition by tenant, "from", "to", thread, stretch order by seq) as before from stretches)
    select * from counted where seq > before + 1"""

QUERIES: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "report: counts an hour": (counts_an_hour, COUNTS_AN_HOUR),
    "report: latency percentiles": (percentiles, PERCENTILES),
    "audit: the balance": (balance, BALANCE),
    "audit: holes in threads": (gaps, GAPS),
}


def in_spark(spark: SparkSession, archive: Path, question: Callable[[DataFrame], DataFrame]) -> float:
    began = time.perf_counter()
    question(read_events(spark, archive, Period())).write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def in_duckdb(archive: Path, question: str) -> float:
    connection = duckdb.connect()
    connection.execute("set threads = 2")
    connection.execute(f"create view events as from read_parquet('{archive}/events/*/*/*.parquet')")
    began = time.perf_counter()
    connection.execute(question).fetchall()
    return time.perf_counter() - began


def main() -> None:
    """Prints one table. Spark is warm: every question was asked once on a small archive before."""
    with tempfile.TemporaryDirectory(prefix="relay-pipeline-") as folder:
        spark = spark_session("bench")
        small = Path(folder, "small")
        make_archive(small, 30_000, agents=AGENTS)
        for question, _ in QUERIES.values():
            in_spark(spark, small, question)
        print(f"| {'query':<28}| events | Spark s | DuckDB s | DuckDB is faster by |")
        print("|---|---|---|---|---|")
        for size, messages in MESSAGES.items():
            archive = Path(folder, size.replace(" ", "-"))
            count = make_archive(archive, messages, agents=AGENTS)
            for name, (question, sql) in QUERIES.items():
                took, took_duckdb = in_spark(spark, archive, question), in_duckdb(archive, sql)
                times = took / took_duckdb
                print(f"| {name:<28}| {count:,} | {took:.1f} | {took_duckdb:.2f} | {times:.1f} × |", flush=True)


if __name__ == "__main__":
    main()
