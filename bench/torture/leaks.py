"""What must be gone when everything is drained and everybody has left: in the store, and in the instances."""

import os
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import redis

from bench.stand import resident_bytes
from bench.torture.books import Breach
from bench.torture.processes import Instance
from bench.torture.topology import Client

# Of a shard: what must be empty when there are no messages and no sessions. `waiting` is not among them: it may name a
# mailbox of several lanes that is empty, and the sweeper sees to it.
EMPTY = frozenset(("ids", "due", "failures", "threads", "presence", "shadows", "shadowed", "owed", "owing", "parts"))
MUST_END = frozenset(("ended", "seqs", "forwarded", "task", "tasks", "tasksizes"))
SUMS = re.compile(r".*\t(messages|bytes|online|dead)")
STATES = ("~ready", "~parked")  # consumers that are not somebody
MOST_SOCKETS = 40  # to the store, and listening; no client is connected any more
MOST_GROWTH_BYTES = 96 * 2**20
GAUGES = ("relay_sessions", "relay_connections", "relay_buffered_bytes")


def store_leaks(clients: list[Client], instances: int) -> Iterator[Breach]:
    """Whatever is in the store that nobody needs any more."""
    for client in clients:
        for name in sorted(client.scan_iter(count=1_000)):
            yield from (Breach("no leaks", f"{name}: {what}") for what in _left(client, name, instances))


def _left(client: Client, name: str, instances: int) -> Iterator[str]:
    kind = name.split(":")[2] if name.startswith("relay:{") else ""
    if kind == "box":
        yield from _left_in_mailbox(client, name)
    elif kind in ("receipts", "dead", "outbox"):
        if client.xlen(name):
            yield f"{client.xlen(name)} entries are left"
    elif kind == "sums":
        wrong = {field: value for field, value in client.hgetall(name).items() if SUMS.fullmatch(field)}
        if wrong:
            yield f"the books of the tenants are not at zero: {wrong}"
    elif kind == "instances":
        if client.hlen(name) > instances:
            yield f"{client.hlen(name)} instances are believed alive, and {instances} are: {client.hgetall(name)}"
    elif kind == "bytes":
        wrong = {address: size for address, size in client.hgetall(name).items() if size != "0"}
        if wrong:
            yield f"empty mailboxes have bytes: {wrong}"
    elif kind in EMPTY:
        yield f"is left, a {client.type(name)}: {_contents(client, name)}"
    elif kind in MUST_END and client.pttl(name) < 0:
        yield "never ends"


def _left_in_mailbox(client: Client, name: str) -> Iterator[str]:
    if client.xlen(name):
        yield f"{client.xlen(name)} messages are left"
    for group in client.xinfo_groups(name):
        holders = [one["name"] for one in client.xinfo_consumers(name, group["name"]) if one["name"] not in STATES]
        if group["pending"] or holders:
            yield f"{group['pending']} entries are pending, and these consumers are left: {holders}"


def _contents(client: Client, name: str) -> str:
    read = {"hash": client.hgetall, "zset": lambda key: client.zrange(key, 0, 5), "set": client.smembers,
            "list": lambda key: client.lrange(key, 0, 5), "string": client.get}  # fmt: skip
    return str(read.get(client.type(name), lambda _: "")(name))[:300]


async def instance_leaks(instances: list[Instance], http: aiohttp.ClientSession, token: str) -> list[Breach]:
    """Sessions, sockets, bytes and memory that an instance still has though nobody is there."""
    found: dict[str, list[str]] = defaultdict(list)
    for instance in instances:
        for gauge, value in (await _gauges(instance, http, token)).items():
            if value:
                found[instance.name].append(f"{gauge} is {value:g}")
        sockets = sum(os.readlink(path).startswith("socket:") for path in _descriptors(instance.pid))
        if sockets > MOST_SOCKETS:
            found[instance.name].append(f"{sockets} sockets are open")
        grown = resident_bytes(instance.pid) - instance.fresh_bytes
        if grown > MOST_GROWTH_BYTES:
            found[instance.name].append(f"its memory has grown by {grown / 2**20:.0f} MiB")
    return [Breach("no leaks", f"{name}: {what}") for name, all_of_it in found.items() for what in all_of_it]


async def _gauges(instance: Instance, http: aiohttp.ClientSession, token: str) -> dict[str, float]:
    async with http.get(f"{instance.url}/metrics", headers={"Authorization": f"Bearer {token}"}) as answer:
        lines = [line.split() for line in (await answer.text()).splitlines() if line.startswith(GAUGES)]
    return {name: float(value) for name, value in lines if name in GAUGES}


def _descriptors(pid: int) -> Iterator[Path]:
    folder = Path(f"/proc/{pid}/fd")
    return (path for path in (folder.iterdir() if folder.exists() else ()) if path.is_symlink())


def pending(client: Client, box: str) -> list[str]:
    """Who holds the first few entries, as XPENDING has it."""
    try:
        rows = client.xpending_range(box, "agent", "-", "+", 5)
    except redis.ResponseError as error:  # it has no group
        return [str(error)]
    return [f"{row['message_id']} {row['consumer']} {row['times_delivered']}" for row in rows]
