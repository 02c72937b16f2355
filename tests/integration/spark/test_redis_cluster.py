"""The whole pipeline on a Redis Cluster: archive, audit, dump, and the dump back into the mailboxes."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from relay.store.keys import Keys
from spark.jobs import archive, audit, dump
from tests.builders import HandClock, a_message, open_desk
from tests.clusters import Cluster
from tests.integration.spark.test_cluster import BOOKS, SHARDS, a_day_at_the_relay

KEYS = Keys(SHARDS, 3_600_000, 3_600_000)
RECIPIENTS = [f"acme/r{n}" for n in range(10)]


@pytest.fixture
def cluster(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:  # noqa: ARG001
    """Three masters after a day's work; jobs of this process work on them."""
    with Cluster() as cluster:
        asyncio.run(a_day_at_the_relay(cluster))
        monkeypatch.setenv("RELAY_REDIS_URL", cluster.url)
        yield cluster


def waiting(cluster: Cluster) -> int:
    with cluster.client() as client:
        return sum(int(client.xlen(KEYS.box(address))) for address in RECIPIENTS)


def relay(cluster: Cluster, *words: str) -> "subprocess.CompletedProcess[str]":
    own = {"RELAY_REDIS_URL": cluster.url, "RELAY_SHARDS": str(SHARDS), "RELAY_TOKEN_SECRET": "x" * 32}
    environ = {name: value for name, value in os.environ.items() if not name.startswith("RELAY_")} | own
    return subprocess.run(
        [sys.executable, "-m", "relay.cli", *words], env=environ, capture_output=True, text=True, timeout=120
    )


def audited(capsys: pytest.CaptureFixture[str], folder: Path) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = audit.main(["--json", "--archive", str(folder)])
    return code, json.loads(capsys.readouterr().out)


def test_the_books_of_a_cluster_balance_and_its_mailboxes_come_back(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archived, dumped = tmp_path / "archive", tmp_path / "dump"
    before = waiting(cluster)

    assert archive.main(["--once", "--out", str(archived)]) == 0
    assert audited(capsys, archived) == (0, BOOKS | {"kinds": {}, "exceptions": []})
    assert dump.main(["--out", str(dumped)]) == 0
    asyncio.run(everything_is_wiped(cluster))
    wiped = waiting(cluster)
    replayed = relay(cluster, "spark", "replay", "--from", str(dumped))

    assert (before, wiped) == (BOOKS["waiting"], 0)
    assert replayed.returncode == 0, replayed.stderr
    assert waiting(cluster) == before


async def everything_is_wiped(cluster: Cluster) -> None:
    """And the relay makes itself at home again."""
    with cluster.client() as client:
        client.flushall()
    async with open_desk(cluster, "relay", HandClock(round(time.time() * 1_000)), shards=SHARDS) as desk:
        await desk.store.inspect()
        await desk.send_one(a_message("elsewhere", "acme/nobody"))
