"""Archive and audit of what a relay has done, on this machine and on a standalone cluster of Spark: the same books."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyspark
import pytest
from pyspark.sql import SparkSession

from relay.cli.up.lifeline import Child
from relay.store.keys import Keys
from spark.jobs import archive, audit
from tests.builders import HandClock, a_message, open_desk
from tests.clusters import Cluster
from tests.servers import HOST, RealServer, free_port

ROOT = Path(__file__).parents[3]
PROGRAMS = Path(pyspark.__file__).parent / "bin"
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
WAIT_S = 120.0
SHARDS = 4
BOOKS = {
    "accepted": 60,
    "revived": 0,
    "acked": 20,
    "expired": 10,
    "dead": 5,
    "cancelled": 5,
    "waiting": 20,
    "undone": 0,
}


async def a_day_at_the_relay(server: RealServer | Cluster) -> None:
    """Sixty messages, each with an end of its own or none."""
    clock = HandClock(round(time.time() * 1_000))
    async with open_desk(server, "relay", clock, shards=SHARDS) as desk:
        await desk.store.inspect()
        recipients = [f"acme/r{n}" for n in range(10)]
        for address in recipients:
            await desk.send(*(a_message(f"m-{n}", address, receipt=False) for n in range(5)))
            await desk.send(a_message("short", address, ttl_s=1, receipt=False))
            session = await desk.join(address)
            first, second, *_ = await desk.take(session)
            await desk.ack(session, first.entry, second.entry)
            await desk.leave(session)
        for address in recipients[:5]:
            session = await desk.join(address)
            await desk.nack(session, (await desk.take_one(session)).entry, retry=False)
            await desk.leave(session)
            await desk.store.lookup.cancel("acme/alice", address, "m-3")
        clock.advance(2)
        for address in recipients:
            await desk.take(await desk.join(address))
        await desk.store.pipeline.finish()


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    with RealServer() as server:
        asyncio.run(a_day_at_the_relay(server))
        yield server


@contextmanager
def a_cluster(folder: Path) -> Iterator[str]:
    """A master and two workers with a core each, from the Python package."""
    port = free_port()
    master = f"spark://{HOST}:{port}"
    common = ["--host", HOST, "--webui-port", "0"]
    words = [["org.apache.spark.deploy.master.Master", *common, "--port", str(port)]]
    worker = ["org.apache.spark.deploy.worker.Worker", *common, "--cores", "1", "--memory", "512m"]
    words += [[*worker, "--work-dir", str(folder / f"worker-{n}"), master] for n in range(2)]
    own = {"SPARK_LOCAL_IP": HOST, "SPARK_DAEMON_JAVA_OPTS": QUICK}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    daemons = [Child([str(PROGRAMS / "spark-class"), *one], env=os.environ | own, **quiet) for one in words]
    try:
        yield master
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait(WAIT_S)


def submitted(master: str) -> list[str]:
    """How a job is started on a cluster."""
    command = [str(PROGRAMS / "spark-submit"), "--master", master, "--driver-java-options", QUICK]
    for setting in (
        f"spark.driver.host={HOST}",
        "spark.executor.memory=512m",
        "spark.sql.shuffle.partitions=4",
        f"spark.executor.extraJavaOptions={QUICK}",
        f"spark.executorEnv.PYTHONPATH={ROOT}",
    ):
        command += ["--conf", setting]
    return [*command, str(ROOT / "spark" / "__main__.py")]


def run(server: RealServer, *command: str) -> "subprocess.CompletedProcess[str]":
    own = {"RELAY_REDIS_URL": server.url, "RELAY_SHARDS": str(SHARDS), "PYTHONPATH": str(ROOT)}
    environ = os.environ | own | {"PYSPARK_PYTHON": sys.executable}
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=WAIT_S)


@pytest.fixture
def here(server: RealServer, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001
    """Jobs of this process work on that server, with the Spark that is there already."""
    monkeypatch.setenv("RELAY_REDIS_URL", server.url)


def audited_here(capsys: pytest.CaptureFixture[str], archive: Path) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = audit.main(["--json", "--archive", str(archive)])
    return code, json.loads(capsys.readouterr().out)


def rows(folder: Path) -> list[tuple[Any, ...]]:
    found = duckdb.sql(f"select * exclude (batch) from read_parquet('{folder}/events/*/*/*.parquet')").fetchall()
    return sorted(found, key=str)


@pytest.mark.usefixtures("here")
def test_a_cluster_and_this_machine_archive_and_audit_the_same(
    server: RealServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, its = tmp_path / "mine", tmp_path / "its"

    with a_cluster(tmp_path) as master:
        archived = run(server, *submitted(master), "archive", "--once", "--out", str(its))
        audited = run(server, *submitted(master), "audit", "--json", "--archive", str(its))
    archived_here = archive.main(["--once", "--out", str(mine)])

    assert (archived.returncode, archived_here) == (0, 0), archived.stderr
    assert rows(mine) == rows(its) != []
    # spark-submit puts what a job says to stderr before what it prints.
    assert (audited.returncode, json.loads(audited.stdout.splitlines()[-1])) == (
        0,
        BOOKS | {"kinds": {}, "exceptions": []},
    )
    assert audited_here(capsys, mine) == (0, BOOKS | {"kinds": {}, "exceptions": []})


@pytest.mark.usefixtures("here")
def test_a_message_that_vanished_is_found_against_the_live_mailboxes(
    server: RealServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert archive.main(["--once", "--out", str(tmp_path)]) == 0
    with server.client() as client:
        box = Keys(SHARDS, 3_600_000, 3_600_000).box("acme/r9")
        ((entry, fields), *_) = client.xrange(box)
        client.xack(box, "agent", entry)
        client.xdel(box, entry)

    code, found = audited_here(capsys, tmp_path)

    assert code == 1
    assert [(one["kind"], one["to"], one["id"]) for one in found["exceptions"]] == [
        ("lost", "r9", fields["head"].split("\t")[3])
    ]
    assert found["waiting"] == BOOKS["waiting"] - 1
