"""The pipeline as people start it: `relay spark …`."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark.sources.mailboxes import SCHEMA
from tests.integration.spark.logs import EventLog, an_event
from tests.servers import RealServer

ROOT = Path(__file__).parents[3]
WAIT_S = 120.0
COLUMNS = pa.schema([field.with_nullable(True) for field in SCHEMA])


@pytest.fixture
def event_log() -> Iterator[EventLog]:
    """Logs under the prefix that the commands use, on a server that nobody else has."""
    with RealServer() as server, server.client() as client:
        yield EventLog(server.url, client, "relay")


def environ(event_log: EventLog) -> dict[str, str]:
    own = {"RELAY_REDIS_URL": event_log.url, "RELAY_SHARDS": "4", "PYTHONPATH": str(ROOT)}
    return {**os.environ, **own, "PYSPARK_PYTHON": sys.executable}


def places(folder: Path) -> list[tuple[int, ...]]:
    wanted = "shard, stream_ms, stream_n, place"
    return duckdb.sql(f"select {wanted} from read_parquet('{folder}/events/*/*/*.parquet')").fetchall()


def test_a_running_archive_goes_on_until_it_is_interrupted(event_log: EventLog, tmp_path: Path) -> None:
    event_log.add(0, an_event())
    command = [sys.executable, "-m", "relay.cli", "spark", "archive", "--out", str(tmp_path)]
    job = subprocess.Popen(command, env=environ(event_log), stderr=subprocess.PIPE, text=True)
    assert job.stderr is not None
    wait_until(job, lambda: event_log.archived()[0] is not None)

    job.send_signal(signal.SIGINT)

    _, said = job.communicate(timeout=WAIT_S)
    assert job.returncode == 0
    assert f"archived 1 events in {tmp_path}; 0 entries are missing" in said
    assert "Traceback" not in said
    assert len(places(tmp_path)) == 1


def test_without_a_store_the_command_says_what_to_do(tmp_path: Path) -> None:
    own = {"RELAY_DATA_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "relay.cli", "spark", "archive", "--out", str(tmp_path / "out")]

    ended = subprocess.run(command, env=os.environ | own, capture_output=True, text=True, timeout=WAIT_S)

    assert ended.returncode == 1
    assert "start `relay up` there, or set RELAY_REDIS_URL" in ended.stderr


def a_dump(folder: Path, *ids: str, **columns: object) -> Path:
    """Messages from alice to bob that wait; the last one has these columns."""
    later_ms = round(time.time() * 1_000) + 3_600_000
    row = dict.fromkeys(COLUMNS.names) | {"box": "mailbox", "tenant": "acme", "to": "bob", "from": "alice"}
    row |= {"priority": 0, "accepted_at": later_ms - 9_000, "expires_at": later_ms, "not_before": 0, "max_attempts": 3}
    row |= {"ack_timeout_ms": 0, "receipt": 1, "request": 0, "bytes": 10, "body": '{"n":1.00}'}
    (folder / "mailboxes").mkdir()
    rows = [row | {"id": one} for one in ids]
    rows[-1] |= columns
    table = pa.Table.from_pylist(rows, schema=COLUMNS)
    pq.write_table(table, folder / "mailboxes" / "part-0.parquet")
    (folder / "mailboxes" / "_SUCCESS").touch()
    return folder


def relay(event_log: EventLog, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "relay.cli", "spark", *words]
    return subprocess.run(command, env=environ(event_log), capture_output=True, text=True, timeout=WAIT_S)


def test_a_dump_is_replayed_after_a_dry_run(event_log: EventLog, tmp_path: Path) -> None:
    dump = str(a_dump(tmp_path, "m-1", "m-2"))

    dry = relay(event_log, "replay", "--from", dump, "--dry-run")
    stored_by_the_dry_run = list(event_log.redis.scan_iter(match="relay:{s*}:box:*"))
    wet = relay(event_log, "replay", "--from", dump, "--agent", "acme/bob", "--since", "2020-01-01")

    assert dry.stdout == "would send 2 messages to 1 mailboxes\n       2 acme/bob\n"
    assert stored_by_the_dry_run == []
    assert (wet.returncode, wet.stderr.splitlines()[-1]) == (0, "2 stored")
    (box,) = event_log.redis.scan_iter(match="relay:{s*}:box:acme/bob")
    heads = [fields["head"].split("\t")[:4] for _, fields in event_log.redis.xrange(box)]
    assert heads == [["acme", "bob", "alice", "m-1"], ["acme", "bob", "alice", "m-2"]]


def test_a_replay_that_is_refused_ends_with_one(event_log: EventLog, tmp_path: Path) -> None:
    dump = str(a_dump(tmp_path, "m-1", "m-2"))
    for shard in range(4):
        event_log.redis.hset(event_log.key(shard, "caps"), "acme/bob", "1\t1000")

    ended = relay(event_log, "replay", "--from", dump)

    assert (ended.returncode, ended.stderr.splitlines()[-1]) == (1, "1 stored, 1 queue_full")


def test_a_replay_refuses_what_no_door_would_take_and_goes_on(event_log: EventLog, tmp_path: Path) -> None:
    text = '"' + "x" * 3_000_000 + '"'
    dump = str(a_dump(tmp_path, "m-1", "m\t2\x1b[2J", "m-3", bytes=len(text), body=text))

    dry = relay(event_log, "replay", "--from", dump, "--dry-run")
    wet = relay(event_log, "replay", "--from", dump)

    odd_id, too_large = [line for line in wet.stderr.splitlines() if line.startswith("refused: ")]
    assert (
        odd_id == "refused: 'm\\t2\\x1b[2J' to 'acme/bob', entry None: malformed: Expected printable ASCII - at `$.id`"
    )
    assert too_large.startswith("refused: 'm-3' to 'acme/bob', entry None: too_large: the payload has 3000002 bytes")
    assert (wet.returncode, wet.stderr.splitlines()[-1]) == (1, "1 stored, 1 malformed, 1 too_large")
    assert (dry.returncode, dry.stderr.splitlines()) == (1, [odd_id, too_large])
    assert dry.stdout == "would send 1 messages to 1 mailboxes\n       1 acme/bob\n"


def wait_until(job: "subprocess.Popen[str]", holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert job.poll() is None, job.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
