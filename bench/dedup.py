"""A store that remembers many ended messages: their memory, what an accept costs beside them, and how they go.

python -m bench.dedup --records 10000000
"""

import asyncio
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import click
import orjson
import redis
import uvloop
from msgspec import Raw

from bench.filling import store_all
from bench.load import percentile
from bench.mailboxes import Figures, note
from bench.servers import RealServer
from bench.stand import cpu_seconds, measuring
from relay.protocol.message import Message
from relay.store.store import Store, open_store

AGENTS = 100_000  # that have sent and received what is remembered
RECORDS_AT_ONCE = 500
BUCKET_MS = 7_200_000
PAYLOAD = Raw(b'"%b"' % (b"x" * 254))
MAILBOXES = 1_000
FLOOD = 50_000  # messages whose cost is taken
SINGLES = 300  # messages that are sent one after the other
PING_S = 0.001
GONE_AFTER_MS = 2_000
LAZY = "lazyfree-lazy-expire"


def records(store: Store, count: int) -> Iterator[tuple[int, str, str]]:
    """Shard, message key and how it ended, as ack_plain.lua writes them."""
    now_ms, shard_of = store.clock.now_ms(), store.keys.shard
    shards = [shard_of(f"acme/worker-{number}") for number in range(AGENTS)]
    run = secrets.token_hex(9)
    for n in range(count):
        to = n * 7_919 % AGENTS
        key = f"acme\tworker-{to}\tworker-{n % AGENTS}\t{run}-{n:09d}"
        yield shards[to], key, f"{now_ms + n // 1_000}-{n % 1_000}\t44"


def remember(store: Store, client: Any, count: int) -> None:
    """Fills the current bucket of every shard."""
    buckets = [store.keys.ended(shard, store.clock.now_ms())[0] for shard in range(store.keys.shards)]
    given = records(store, count)
    while some := list(islice(given, RECORDS_AT_ONCE * len(buckets))):
        fields: list[list[str]] = [[] for _ in buckets]
        for shard, key, how in some:
            fields[shard] += (key, how)
        pipeline = client.pipeline(transaction=False)
        for bucket, flat in zip(buckets, fields, strict=True):
            if flat:
                pipeline.execute_command("HSET", bucket, *flat)
        pipeline.execute()
    for bucket in buckets:
        client.pexpire(bucket, BUCKET_MS, nx=True)


def messages(count: int) -> Iterator[Message]:
    run = secrets.token_hex(4)
    return (Message(id=f"{run}-{n}", to=f"acme/box-{n % MAILBOXES}", payload=PAYLOAD) for n in range(count))


async def accepting(store: Store, server: RealServer) -> Figures:
    """What an accept costs in numbers, and how long a single one takes."""
    began, cpu = time.perf_counter(), cpu_seconds(server.pid)
    await store_all(store, "acme/sender", messages(FLOOD))
    took_s, server_s = time.perf_counter() - began, cpu_seconds(server.pid) - cpu
    singles: list[float] = []
    for message in messages(SINGLES):
        began = time.perf_counter()
        await store_all(store, "acme/sender", [message])
        singles.append((time.perf_counter() - began) * 1_000)
    return {
        "msgs_s": round(FLOOD / took_s),
        "server_us": round(server_s / FLOOD * 1e6, 1),
        "single_p50_ms": round(percentile(singles, 0.5), 2),
        "single_p99_ms": round(percentile(singles, 0.99), 2),
    }


@contextmanager
def stalls(port: int) -> Iterator[list[float]]:
    """Milliseconds that each ping took meanwhile."""
    client: Any = redis.Redis(port=port)
    took: list[float] = []
    over = threading.Event()

    def ping() -> None:
        while not over.wait(PING_S):
            began = time.perf_counter()
            client.ping()
            took.append((time.perf_counter() - began) * 1_000)

    pinging = threading.Thread(target=ping)
    pinging.start()
    try:
        yield took
    finally:
        over.set()
        pinging.join()


def expire(store: Store, server: RealServer, lazy: str) -> Figures:
    """All buckets end at once: how long the server answers nobody, and when their memory is back."""
    client: Any = server.client()
    client.config_set(LAZY, lazy)
    buckets = [store.keys.ended(shard, store.clock.now_ms())[0] for shard in range(store.keys.shards)]
    fields, before = sum(map(client.hlen, buckets)), client.info("memory")["used_memory"]
    with stalls(server.port) as took:
        ends_ms = int(time.time() * 1_000) + GONE_AFTER_MS
        for bucket in buckets:
            client.pexpireat(bucket, ends_ms)
        while client.exists(*buckets) or client.info("memory")["lazyfree_pending_objects"]:
            time.sleep(0.05)
        freed_s = time.time() - ends_ms / 1_000
    freed = before - client.info("memory")["used_memory"]
    return {
        LAZY: lazy,
        "fields": fields,
        "freed_bytes": freed,
        "longest_stall_ms": round(max(took), 1),
        "freed_after_s": round(freed_s, 2),
    }


async def measure(server: RealServer, count: int) -> Figures:
    client: Any = server.client()
    client.config_set("auto-aof-rewrite-percentage", "0")
    found: Figures = {"records": count}
    async with open_store(measuring(server.folder), server.url) as store:
        await store.inspect()
        await accepting(store, server)  # warm
        found["without"] = await accepting(store, server)
        for lazy in ("no", "yes"):
            before = client.info("memory")["used_memory"]
            note(f"{count:,} records, {LAZY} {lazy}")
            await asyncio.to_thread(remember, store, client, count)
            found["bytes_each"] = round((client.info("memory")["used_memory"] - before) / count, 1)
            found[f"with, {LAZY} {lazy}"] = await accepting(store, server)
            found[f"ending, {LAZY} {lazy}"] = await asyncio.to_thread(expire, store, server, lazy)
    return found


@click.command()
@click.option("--records", "count", default=10_000_000, show_default=True)
def main(count: int) -> None:
    """Measure a dedup window with so many ids; prints JSON."""
    with RealServer() as server:
        found = uvloop.run(measure(server, count))
    print(orjson.dumps(found, option=orjson.OPT_INDENT_2).decode())


if __name__ == "__main__":
    main()
