"""The pipeline as people start it: `relay spark …`, and spark-submit on a standalone cluster."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyspark
import pytest

from tests.integration.spark.logs import EventLog, an_event
from tests.servers import HOST, RealServer, free_port

ROOT = Path(__file__).parents[3]
PROGRAMS = Path(pyspark.__file__).parent / "bin"
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
WAIT_S = 120.0


@pytest.fixture
def event_log(redis_server: RealServer) -> Iterator[EventLog]:
    """Logs under the prefix that the commands use; nobody else has them on this server."""
    with redis_server.client() as client:
        yield (log := EventLog(redis_server.url, client, "relay"))
        client.delete("relay:meta", *(log.key(shard, name) for shard in range(4) for name in ("events", "archived")))


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


def test_a_standalone_cluster_archives_the_same(event_log: EventLog, tmp_path: Path) -> None:
    count = event_log.fill(entries=400, days=2)
    with a_cluster(tmp_path) as master:
        command = [str(PROGRAMS / "spark-submit"), "--master", master, "--driver-java-options", QUICK]
        for setting in (
            f"spark.driver.host={HOST}",
            "spark.executor.memory=512m",
            f"spark.executor.extraJavaOptions={QUICK}",
            f"spark.executorEnv.PYTHONPATH={ROOT}",
        ):
            command += ["--conf", setting]
        command += [str(ROOT / "spark" / "__main__.py"), "archive", "--once", "--out", str(tmp_path / "archive")]

        ended = subprocess.run(command, env=environ(event_log), capture_output=True, text=True, timeout=WAIT_S)

    assert ended.returncode == 0, ended.stderr
    found = places(tmp_path / "archive")
    assert len(found) == len(set(found)) == count


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
    daemons = [subprocess.Popen([PROGRAMS / "spark-class", *one], env=os.environ | own, **quiet) for one in words]
    try:
        yield master
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait(WAIT_S)


def wait_until(job: "subprocess.Popen[str]", holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert job.poll() is None, job.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
