"""The data source of events: on a real server, and where Spark itself matters, in Spark."""

import secrets
from pathlib import Path
from typing import Any

import pytest
import redis
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from relay.store.record.events import COLUMNS
from spark.schemas import EVENTS
from spark.sources.events import EventsReader, EventsStreamReader, RelayEvents
from spark.sources.parsing import OWN_COLUMNS
from spark.sources.store import StoreError, locate
from tests.integration.spark.logs import DAY_MS, INSTANCE, NOON_MS, EventLog, an_event
from tests.servers import RealCluster

ALL = ReadAllAvailable()


def rows(batches: Any) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def read_all(reader: EventsReader) -> list[dict[str, Any]]:
    return [row for lot in reader.partitions() for row in rows(reader.read(lot))]


def read_between(reader: EventsStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for lot in reader.partitions(start, end) for row in rows(reader.read(lot))]


def ids(found: list[dict[str, Any]]) -> list[str]:
    return sorted(row["id"] for row in found)


@pytest.fixture
def reader(event_log: EventLog) -> EventsReader:
    return EventsReader(event_log.place, tasks=2)


@pytest.fixture
def stream(event_log: EventLog) -> EventsStreamReader:
    return EventsStreamReader(event_log.place, tasks=2, max_rows=1_000_000)


def test_the_columns_of_an_event_are_those_that_the_relay_writes() -> None:
    assert tuple(EVENTS.names[OWN_COLUMNS:]) == COLUMNS


def test_an_event_comes_with_every_column_and_its_place(event_log: EventLog, reader: EventsReader) -> None:
    columns = {"entry": "5-1", "seq": 7, "attempt": 2, "who": "i.1", "reason": "late", "type": "job"}
    columns |= {"thread": "t", "priority": 3, "bytes": 256}
    event_log.add(1, an_event("accepted"), an_event("acked", held_ms=5, **columns))

    _, acked = read_all(reader)

    place = {"shard": 1, "stream_ms": NOON_MS, "stream_n": 0, "place": 1}
    which = {"kind": "acked", "at_ms": NOON_MS, "tenant": "acme", "to": "bob", "from": "alice", "id": "m-1"}
    times = {"instance": INSTANCE, "taken_at": NOON_MS - 5}
    assert acked == place | which | columns | times


@pytest.mark.parametrize(
    ("written", "who"),
    [(".24", f"{INSTANCE}.24"), ("5f0c2a9d1e.24", "5f0c2a9d1e.24"), ("http..24.ab", "http..24.ab")],
)
def test_who_did_it_is_named_in_full(event_log: EventLog, reader: EventsReader, written: str, who: str) -> None:
    event_log.add(0, an_event("acked", who=written))

    assert [row["who"] for row in read_all(reader)] == [who]


def test_a_name_that_begins_with_a_dot_is_no_session_of_the_instance(event_log: EventLog, reader: EventsReader) -> None:
    event_log.add(0, an_event("cancelled").replace("\t\t\t\t", "\t\t\t\t\\.24/bob", 1))

    assert [(row["who"], row["id"]) for row in read_all(reader)] == [(".24/bob", "m-1")]


def test_what_an_event_does_not_say_is_null(event_log: EventLog, reader: EventsReader) -> None:
    event_log.add(0, an_event("joined", id="", **{"from": ""}))

    (joined,) = read_all(reader)

    said = {name for name, value in joined.items() if value is not None}
    assert said == {"shard", "stream_ms", "stream_n", "place", "kind", "at_ms", "instance", "tenant", "to"}


@pytest.mark.parametrize(
    "text", ["tab\there", "line\nhere", "\r", "back\\slash", "\\t", "\\\\n", 'a "quoted" one', "é"]
)
def test_escaped_text_comes_back_as_it_was(event_log: EventLog, reader: EventsReader, text: str) -> None:
    event_log.add(0, an_event(type="plain"), an_event(type=text, reason=text))

    found = read_all(reader)

    assert [(row["type"], row["reason"]) for row in found] == [("plain", None), (text, text)]


def test_every_event_of_every_shard_is_read_once(event_log: EventLog, reader: EventsReader) -> None:
    count = event_log.fill(entries=5_000, events_per_entry=3, days=3)

    found = read_all(reader)

    assert (
        len(found) == len({(row["shard"], row["stream_ms"], row["stream_n"], row["place"]) for row in found}) == count
    )
    assert len({row["id"] for row in found}) == count


def test_a_long_log_is_read_in_parts(event_log: EventLog, reader: EventsReader) -> None:
    for n in range(4_000):
        event_log.add(2, an_event(id=f"m-{n}"), at_ms=NOON_MS + n // 3)

    lots = reader.partitions()

    assert len(lots) == 2
    assert len({row["id"] for row in read_all(reader)}) == 4_000


def test_large_entries_are_read_in_small_pages(
    event_log: EventLog, reader: EventsReader, redis_client: redis.Redis
) -> None:
    for n in range(30):
        event_log.add(0, *(an_event(id=f"m-{n}-{place}") for place in range(1_000)))
    redis_client.config_resetstat()

    assert len(read_all(reader)) == 30_000

    assert redis_client.info("commandstats")["cmdstat_xrange"]["calls"] >= 7


def test_what_comes_after_planning_is_not_read(event_log: EventLog, reader: EventsReader) -> None:
    event_log.add(0, an_event(id="before"))
    (lot,) = reader.partitions()

    event_log.add(0, an_event(id="after"))

    assert ids(rows(reader.read(lot))) == ["before"]


def test_events_of_another_version_are_refused(event_log: EventLog, reader: EventsReader) -> None:
    event_log.redis.xadd(event_log.key(0), {"e3": an_event()})

    with pytest.raises(StoreError, match="version 'e3'"):
        read_all(reader)


# -- options


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"url": ""}, "`url` is missing"),
        ({"url": "http://127.0.0.1"}, "'http' is not supported"),
        ({"url": "redis+sentinel://127.0.0.1:1"}, "needs host:port,… and /name"),
        ({"url": "redis://127.0.0.1:1"}, "does not answer"),
        ({"shards": "many"}, "`shards` must be a number from 1 on"),
        ({"prefix": "elsewhere"}, "elsewhere:meta is not there"),
    ],
)
def test_wrong_options_are_named(event_log: EventLog, options: dict[str, str], complaint: str) -> None:
    with pytest.raises(StoreError, match=complaint):
        locate(event_log.options | options)


def test_wrong_numbers_among_the_options_are_named(event_log: EventLog) -> None:
    with pytest.raises(StoreError, match="`tasks` must be a number from 1 on, not 'all'"):
        RelayEvents(event_log.options | {"tasks": "all"}).reader(EVENTS)


# -- as a stream


def test_a_stream_begins_with_what_is_there(event_log: EventLog, stream: EventsStreamReader) -> None:
    for n in range(5):
        event_log.add(0, an_event(id=f"m-{n}"))
    event_log.trim_to(0, 3)

    start = stream.initialOffset()
    found = read_between(stream, start, stream.latestOffset(start, ALL))

    assert ids(found) == ["m-2", "m-3", "m-4"]


def test_a_stream_goes_on_where_it_was(event_log: EventLog, stream: EventsStreamReader) -> None:
    event_log.add(0, an_event(id="first"))
    first = stream.latestOffset(stream.initialOffset(), ALL)
    event_log.add(0, an_event(id="second"))
    event_log.add(3, an_event(id="third"))

    second = stream.latestOffset(first, ALL)

    assert ids(read_between(stream, first, second)) == ["second", "third"]
    assert stream.latestOffset(second, ALL) == second == stream.reportLatestOffset()
    assert stream.partitions(second, second) == []


def test_a_limited_batch_takes_the_logs_that_are_most_behind(event_log: EventLog, stream: EventsStreamReader) -> None:
    event_log.add(0, an_event(id="read"), at_ms=NOON_MS)
    read = stream.latestOffset(stream.initialOffset(), ALL)
    event_log.add(0, an_event(id="new"), at_ms=NOON_MS + 1)
    event_log.add(1, an_event(id="behind"), at_ms=NOON_MS)

    limited = stream.latestOffset(read, ReadMaxRows(1))

    assert ids(read_between(stream, read, limited)) == ["behind"]
    assert ids(read_between(stream, limited, stream.latestOffset(limited, ReadMaxRows(1)))) == ["new"]


def test_a_run_up_to_now_leaves_what_comes_later(event_log: EventLog, stream: EventsStreamReader) -> None:
    event_log.add(0, an_event(id="before"))
    start = stream.initialOffset()
    stream.prepareForTriggerAvailableNow()

    event_log.add(0, an_event(id="after"))

    end = stream.latestOffset(start, ALL)
    assert ids(read_between(stream, start, end)) == ["before"]
    assert stream.latestOffset(end, ALL) == end


def test_trimmed_entries_are_counted_where_they_are_missing(event_log: EventLog, stream: EventsStreamReader) -> None:
    event_log.add(0, an_event(id="read"))
    read = stream.latestOffset(stream.initialOffset(), ALL)
    for n in range(10):
        event_log.add(0, an_event(id=f"m-{n}"), at_ms=NOON_MS + 1 + n)

    event_log.trim_to(0, 4)

    found = read_between(stream, read, stream.latestOffset(read, ALL))
    (lost,) = [row for row in found if row["kind"] == "lost"]
    assert (lost["shard"], lost["stream_ms"], lost["place"], lost["reason"]) == (0, NOON_MS + 7, -1, "6")
    assert [row["id"] for row in found if row["kind"] != "lost"] == ["m-6", "m-7", "m-8", "m-9"]


def test_entries_trimmed_between_planning_and_reading_are_counted_too(
    event_log: EventLog, stream: EventsStreamReader
) -> None:
    for n in range(5):
        event_log.add(0, an_event(id=f"m-{n}"))
    start = stream.initialOffset()
    (lot,) = stream.partitions(start, stream.latestOffset(start, ALL))

    event_log.trim_to(0, 0)

    assert [(row["kind"], row["reason"]) for row in rows(stream.read(lot))] == [("lost", "5")]


def test_trimming_what_was_read_loses_nothing(event_log: EventLog, stream: EventsStreamReader) -> None:
    for n in range(5):
        event_log.add(0, an_event(id=f"m-{n}"))
    read = stream.latestOffset(stream.initialOffset(), ALL)

    event_log.trim_to(0, 1)
    event_log.add(0, an_event(id="new"))

    assert ids(read_between(stream, read, stream.latestOffset(read, ALL))) == ["new"]


@pytest.mark.parametrize("refilled", [0, 1, 20])
def test_a_wiped_log_fails_loudly(event_log: EventLog, stream: EventsStreamReader, refilled: int) -> None:
    for n in range(5):
        event_log.add(0, an_event(id=f"m-{n}"))
    read = stream.latestOffset(stream.initialOffset(), ALL)

    event_log.wipe()
    for n in range(refilled):
        event_log.add(0, an_event(id=f"n-{n}"), at_ms=NOON_MS + DAY_MS)

    with pytest.raises(StoreError, match=r"shard 0 was read up to .* the store was wiped"):
        stream.latestOffset(read, ALL)


def test_another_epoch_fails_loudly(event_log: EventLog, stream: EventsStreamReader) -> None:
    event_log.add(0, an_event())
    read = stream.latestOffset(stream.initialOffset(), ALL)

    event_log.meta(epoch="two")

    with pytest.raises(StoreError, match="the store's epoch is 'two' and was 'one': it was wiped"):
        EventsStreamReader(event_log.place, tasks=2, max_rows=1).latestOffset(read, ALL)


def test_a_store_that_is_wiped_while_it_is_read_fails_loudly(event_log: EventLog, stream: EventsStreamReader) -> None:
    read = stream.latestOffset(stream.initialOffset(), ALL)

    event_log.meta(epoch="two")

    with pytest.raises(StoreError, match="the store's epoch is 'two' and was 'one': it was wiped"):
        stream.latestOffset(read, ALL)


# -- in Spark


def test_spark_reads_all_events_and_pushes_filters_down(spark: SparkSession, event_log: EventLog) -> None:
    event_log.add(0, an_event("accepted", id="m-1"), an_event("acked", id="m-1"))
    event_log.add(1, an_event("acked", tenant="beta", id="m-2"), at_ms=NOON_MS + 5)
    event_log.add(2, an_event("dead", id="m-3"), at_ms=NOON_MS + 10)

    events = spark.read.format("relay_events").options(**event_log.options).load()

    assert events.schema.names == EVENTS.names
    assert events.count() == 4
    wanted = events.where("kind in ('acked', 'dead') and tenant = 'acme'")
    assert sorted(row.id for row in wanted.collect()) == ["m-1", "m-3"]
    assert [row.id for row in events.where(f"stream_ms > {NOON_MS} and stream_ms < {NOON_MS + 10}").collect()] == [
        "m-2"
    ]
    assert [row.id for row in events.where(f"stream_ms >= {NOON_MS + 10} and thread is null").collect()] == ["m-3"]


def test_spark_streams_events_from_checkpoint_to_checkpoint(
    spark: SparkSession, event_log: EventLog, tmp_path: Path
) -> None:
    seen: list[str] = []

    def stream_up_to_now() -> None:
        events = spark.readStream.format("relay_events").options(**event_log.options).load()
        query = events.writeStream.foreachBatch(lambda batch, _: seen.extend(row.id for row in batch.collect()))
        query.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination()

    event_log.add(0, an_event(id="first"))
    stream_up_to_now()
    event_log.add(0, an_event(id="second"))
    stream_up_to_now()

    assert seen == ["first", "second"]


def test_spark_reads_a_cluster(spark: SparkSession) -> None:
    with RealCluster() as cluster:
        node = cluster.servers[0]
        with redis.RedisCluster(host="127.0.0.1", port=node.port, decode_responses=True) as client:
            event_log = EventLog(cluster.url, client, f"test-{secrets.token_hex(6)}", shards=8)
            for shard in range(8):
                event_log.add(shard, an_event(id=f"m-{shard}"))

            events = spark.read.format("relay_events").options(**event_log.options).load()

            assert sorted(row.id for row in events.collect()) == [f"m-{shard}" for shard in range(8)]


ONE_OF_FOUR_UNREADABLE = [("accepted", "a", 0), ("unreadable", None, 1), ("accepted", "b", 2), ("accepted", "c", 0)]


@pytest.mark.parametrize("text", ["", f"{NOON_MS}\ti1"])
def test_a_text_without_lines_is_an_event_that_cannot_be_read(
    reader: EventsReader, event_log: EventLog, text: str
) -> None:
    event_log.redis.xadd(event_log.key(1), {"e1": text}, id=f"{NOON_MS}-1")
    event_log.add(1, an_event(id="a"))

    found = read_all(reader)

    assert [(row["kind"], row["id"]) for row in found] == [("unreadable", None), ("accepted", "a")]


@pytest.mark.parametrize("bad", ["", "accepted", an_event(bytes=5) + "\tmore", an_event(held_ms="long")])
def test_an_event_that_cannot_be_read_is_counted_and_hides_no_other(
    reader: EventsReader, event_log: EventLog, bad: str
) -> None:
    event_log.add(1, an_event(id="a"), bad, an_event(id="b"))
    event_log.add(1, an_event(id="c"))

    found = read_all(reader)

    assert [(row["kind"], row["id"], row["place"]) for row in found] == ONE_OF_FOUR_UNREADABLE


def test_no_event_is_read_without_its_first_line(reader: EventsReader, event_log: EventLog) -> None:
    event_log.redis.xadd(
        event_log.key(1), {"e1": f"soon\ti1\n{an_event(id='a')}\n{an_event(id='b')}"}, id=f"{NOON_MS}-1"
    )
    event_log.add(1, an_event(id="c"))

    found = read_all(reader)

    assert [(row["kind"], row["id"], row["at_ms"]) for row in found] == [
        ("unreadable", None, NOON_MS),
        ("unreadable", None, NOON_MS),
        ("accepted", "c", NOON_MS),
    ]
