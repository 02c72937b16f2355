"""Selects what the page shows: few rows, from tables that may be large."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.transforms.hours import summed_by

TOP_AGENTS, TOP_PAIRS, TOP_SESSIONS, TOP_EPISODES, TOP_DEPTHS = 15, 12, 12, 25, 3
KINDS = ("backlog_growing", "dying", "expiring", "redelivery_storm", "unusual_delivered", "unusual_accepted", "too_old")

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Best:
    """The first of many rows."""

    rows: list[Row]
    total: int

    @property
    def more(self) -> int:
        return self.total - len(self.rows)


@dataclass(frozen=True, slots=True)
class Findings:
    first_ms: int
    last_ms: int
    totals: Row
    latency: Row
    waiting: int
    hours: list[Row]
    latencies: list[Row]
    depths: list[Row]
    deepest: dict[str, list[Row]]  # depth over time, of the agents for which most waited at one time
    tenants: Best
    agents: Best
    pairs: Best
    sessions: Best
    episodes: Best


def gather(tables: Mapping[str, DataFrame], first_ms: int, last_ms: int) -> Findings:
    """Reads from the tables of a report what the page shows."""
    hours, depth = tables["hours"], tables["depth"]
    agents = (
        hours.transform(summed_by("tenant", "agent"))
        .join(tables["latency_of_agents"].drop("delivered"), on=["tenant", "agent"], how="left")
        .join(depth.groupBy("tenant", "agent").agg(F.max("depth").alias("most")), on=["tenant", "agent"], how="left")
    )
    sessions = _with_times(tables["sessions"], "first_seen", "last_seen")
    episodes = _with_times(tables["episodes"], "first_hour", "last_hour")
    by_kind = F.array_position(F.array(*(F.lit(kind) for kind in KINDS)), F.col("kind"))
    return Findings(
        first_ms=first_ms,
        last_ms=last_ms,
        totals=_rows(hours.transform(summed_by()))[0],
        latency=_rows(tables["latency_of_all"])[0],
        waiting=_waiting_at_the_end(depth, last_ms),
        hours=_over_time(hours.transform(summed_by("hour"))),
        latencies=_over_time(tables["latency_of_hours"]),
        depths=_over_time(_of_all_agents(depth)),
        deepest=_deepest(depth),
        tenants=_best(hours.transform(summed_by("tenant")), TOP_AGENTS, F.desc("accepted"), "tenant"),
        agents=_best(agents, TOP_AGENTS, F.desc("accepted"), "tenant", "agent"),
        pairs=_best(tables["pairs"], TOP_PAIRS, F.desc("accepted"), "tenant", "from", "to"),
        sessions=_best(sessions, TOP_SESSIONS, F.desc("taken"), "session"),
        episodes=_best(episodes, TOP_EPISODES, by_kind, F.desc("hours"), "tenant", "agent", "first_hour"),
    )


def _of_all_agents(depth: DataFrame) -> DataFrame:
    return depth.groupBy("hour").agg(F.sum("depth").alias("depth"), F.max("oldest_ms").alias("oldest_ms"))


def _deepest(depth: DataFrame) -> dict[str, list[Row]]:
    most = depth.groupBy("tenant", "agent").agg(F.max("depth").alias("most"))
    first = most.orderBy(F.desc("most"), "tenant", "agent").limit(TOP_DEPTHS).drop("most")
    by_agent: dict[str, list[Row]] = {}
    for row in _over_time(depth.join(first, on=["tenant", "agent"], how="inner")):
        by_agent.setdefault(f"{row['tenant']}/{row['agent']}", []).append(row)
    return by_agent


def _waiting_at_the_end(depth: DataFrame, last_ms: int) -> int:
    in_last_hour = F.unix_millis("hour") == last_ms // 3_600_000 * 3_600_000
    return int(_rows(depth.where(in_last_hour).agg(F.sum("depth").alias("waiting")))[0]["waiting"] or 0)


def _best(table: DataFrame, count: int, *order: Column | str) -> Best:
    return Best(_rows(table.orderBy(*order).limit(count)), table.count())


def _over_time(table: DataFrame) -> list[Row]:
    return _rows(_with_times(table, "hour").orderBy("hour_ms"))


def _with_times(table: DataFrame, *names: str) -> DataFrame:
    """Times as milliseconds, which mean the same everywhere."""
    return table.select("*", *(F.unix_millis(name).alias(f"{name}_ms") for name in names))


def _rows(table: DataFrame) -> list[Row]:
    return [row.asDict() for row in table.collect()]
