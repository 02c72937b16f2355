"""The archive beside the plain ways to do the same: python -m bench.pipeline archive

Fills a server with events in 64 shards, then reads them all into Parquet in three ways, in one run: redis-py with
pandas, one process of pyarrow, and the archive job in Spark after a first small run that warms it up.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import redis

from relay.cli.up.embedded import ServerProcess, server_program
from spark.sources.events import MAX_ROWS_PER_BATCH

SHARDS = 64
EVENTS_PER_ENTRY = 20
FILL_AT_ONCE = 100
PAGE_ENTRIES = 200
BATCHES_SEEN = 10  # how often memory is looked at
START_MS = 1_800_000_000_000
KINDS = ("accepted", "taken", "acked") * 6 + ("nacked", "released")
INSTANCE = "c0ffee1234"
COLUMNS = (
    *("kind", "entry", "seq", "attempt", "who", "reason", "held_ms"),
    *("tenant", "to", "from", "id", "type", "thread", "priority", "bytes"),
)


@contextmanager
def server() -> Iterator[tuple[str, redis.Redis]]:
    """A server of its own, in memory: the store is not what is measured."""
    with tempfile.TemporaryDirectory(prefix="relay-bench-") as folder:
        path = f"{folder}/redis.sock"
        options = {"port": "0", "unixsocket": path, "save": "", "appendonly": "no", "dir": folder}
        process = ServerProcess(server_program(), options, Path(folder, "server.log"))
        try:
            process.wait_until_ready(path)
            with redis.Redis(unix_socket_path=path, protocol=2) as client:
                yield f"unix://{path}", client
        finally:
            process.kill()


def fill(client: redis.Redis, prefix: str, events: int) -> None:
    """Events as the relay writes them, twenty an entry."""
    client.hset(f"{prefix}:meta", mapping={"schema": "1", "shards": SHARDS, "epoch": "bench"})
    chance = random.Random(7)
    for start in range(0, events // EVENTS_PER_ENTRY, FILL_AT_ONCE):
        with client.pipeline(transaction=False) as pipeline:
            for entry in range(start, min(start + FILL_AT_ONCE, events // EVENTS_PER_ENTRY)):
                key = f"{prefix}:{{s{entry % SHARDS:02d}}}:events"
                lines = an_entry(chance, entry)
                pipeline.execute_command("XADD", key, f"{START_MS + entry}-0", "e1", lines)  # type: ignore[no-untyped-call]
            pipeline.execute()


def an_entry(chance: random.Random, entry: int) -> str:
    """A first line, and one for each event."""
    at = START_MS + entry
    return "\n".join([f"{at}\t{INSTANCE}", *(an_event(chance, kind, at, place) for place, kind in enumerate(KINDS))])


def an_event(chance: random.Random, kind: str, at: int, place: int) -> str:
    """Only an accept says what is in the head, and only the others say who had it for how long."""
    message = f"acme\t{an_agent(chance)}\t{an_agent(chance)}\t{chance.getrandbits(64):016x}"
    if kind == "accepted":
        return f"{kind}\t{at - 9}-{place}\t{at}\t\t\t\t\t{message}\tjob\t\t0\t256"
    return f"{kind}\t{at - 9}-{place}\t\t1\t.{place}\t\t4\t{message}"


def an_agent(chance: random.Random) -> str:
    return f"agent-{chance.randrange(1_000)}"


def pages(client: redis.Redis, prefix: str, shard: int) -> Iterator[list[Any]]:
    """A shard's log, as the server sends it."""
    client.set_response_callback("XRANGE", lambda reply, **_: reply)
    key, start = f"{prefix}:{{s{shard:02d}}}:events", "-"
    while page := client.execute_command("XRANGE", key, start, "+", "COUNT", PAGE_ENTRIES):  # type: ignore[no-untyped-call]
        yield page
        start = f"({page[-1][0].decode()}"


def with_pandas(client: redis.Redis, prefix: str, folder: Path) -> int:
    """The plain way: a list of columns per event, a frame per shard."""
    import pandas as pd  # type: ignore[import-untyped]

    count = 0
    for shard in range(SHARDS):
        rows = [
            [shard, stream_id.decode(), *first.split("\t"), *line.split("\t")]
            for page in pages(client, prefix, shard)
            for stream_id, (_, value) in page
            for first, *lines in [value.decode().split("\n")]
            for line in lines
        ]
        frame = pd.DataFrame(rows, columns=["shard", "stream_id", "at_ms", "instance", *COLUMNS])
        for name in ("at_ms", "seq", "attempt", "held_ms", "priority", "bytes"):
            frame[name] = pd.to_numeric(frame[name]).astype("Int64")
        frame["taken_at"] = frame["at_ms"] - frame.pop("held_ms")
        frame["who"] = frame["instance"].where(frame["who"].str.startswith("."), "") + frame["who"]
        frame.to_parquet(folder / f"{shard}.parquet", compression="zstd")
        count += len(frame)
    return count


def with_pyarrow(url: str, prefix: str, folder: Path) -> int:
    """One process, the same columns as the archive, made by the same parser."""
    import pyarrow.parquet as parquet

    from spark.sources import event_log
    from spark.sources.parsing import SCHEMA
    from spark.sources.store import Store, locate

    count = 0
    with Store(locate({"url": url, "prefix": prefix})) as store:
        for shard in range(SHARDS):
            with parquet.ParquetWriter(folder / f"{shard}.parquet", SCHEMA, compression="zstd") as writer:
                for batch in event_log.read(store, [event_log.Range(shard, "-", "+", 0)]):
                    writer.write_batch(batch)
                    count += len(batch)
    return count


class Archiving:
    """The archive job in a process of its own, warm: it has archived a small store before."""

    def __init__(self, url: str) -> None:
        environ = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
        self._child = subprocess.Popen(
            [sys.executable, "-m", "bench.archiving", url],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def run(self, prefix: str, folder: Path, batch_rows: int = MAX_ROWS_PER_BATCH) -> dict[str, Any]:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        print(f"{prefix}\t{folder}\t{batch_rows}", file=self._child.stdin, flush=True)
        for line in self._child.stdout:
            if line.startswith("{"):
                return dict(json.loads(line))
        raise RuntimeError("the archive job has ended")

    def stop(self) -> None:
        self._child.communicate(timeout=60)


def measured(events: int, work: Callable[[], int]) -> float:
    """Events a second."""
    began = time.perf_counter()
    assert work() == events
    return events / (time.perf_counter() - began)


@click.group()
def main() -> None:
    """Measure the data pipeline on this machine."""


@main.command()
@click.option("--events", default=2_000_000, show_default=True)
def archive(events: int) -> None:
    """Archive events in three ways."""
    with server() as (url, client), tempfile.TemporaryDirectory(prefix="relay-bench-") as name:
        folder = Path(name)
        for part in ("pandas", "pyarrow"):
            (folder / part).mkdir()
        fill(client, "warm", 100_000)
        fill(client, "relay", events)
        pandas_rate = measured(events, lambda: with_pandas(client, "relay", folder / "pandas"))
        print(f"redis-py and pandas                {pandas_rate:10,.0f} events/s")
        pyarrow_rate = measured(events, lambda: with_pyarrow(url, "relay", folder / "pyarrow"))
        print(f"one process of pyarrow             {pyarrow_rate:10,.0f} events/s")
        job = Archiving(url)
        job.run("warm", folder / "warm")
        done = job.run("relay", folder / "spark")
        often = job.run("relay", folder / "often", events // BATCHES_SEEN)
        job.stop()
        assert done["events"] == events
        rate = events / done["seconds"]
        print(f"archive, exactly once              {rate:10,.0f} events/s")
        print(f"archive ÷ pandas, archive ÷ pyarrow   {rate / pandas_rate:.1f}, {rate / pyarrow_rate:.2f}")
        print(f"driver, MB after each batch        Python {often['python_mb']}, JVM {often['jvm_mb']}")


if __name__ == "__main__":
    main()
