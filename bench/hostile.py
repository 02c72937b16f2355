"""What others notice of two hostile clients at full speed: one without credentials, one with an ordinary token.

python -m bench.hostile --seconds 60
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import click
import redis
import uvloop

from bench.load import Latencies, Load, percentile
from bench.stand import Stand, resident_bytes, stand
from relay.auth import Tokens
from relay.cli.up.lifeline import Child

PAIRS = 20
PER_S = 50.0
QUIET_S = 10.0  # before the attack, and after it until all must be as before
MAX_MEMORY = 256 * 2**20
WATCH_S = 0.5
TENANT = "bench"  # the attacker is one of the bystanders' own tenant


@dataclass(slots=True)
class Watch:
    """The worst that was seen."""

    redis_bytes: int = 0
    instance_bytes: int = 0


async def watch(there: Stand, store: redis.Redis, seen: Watch) -> None:
    while True:
        seen.redis_bytes = max(seen.redis_bytes, int(store.info("memory")["used_memory"]))
        seen.instance_bytes = max(seen.instance_bytes, *map(resident_bytes, there.instance_pids))
        await asyncio.sleep(WATCH_S)


@contextmanager
def attackers(there: Stand, token: str, seconds: float) -> Iterator[list[Child]]:
    ports = ",".join(map(str, there.ports))
    command = [sys.executable, "-m", "bench.attacks", "--ports", ports, "--seconds", str(seconds)]
    children = [Child(words, stdout=subprocess.PIPE, text=True) for words in (command, [*command, "--token", token])]
    try:
        yield children
    finally:
        for child in children:
            child.terminate()
            child.communicate(timeout=30)


@contextmanager
def workers(there: Stand) -> Iterator[None]:
    command = [sys.executable, "-m", "relay.cli", "workers"]
    child = Child(command, env=there.environ, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        child.terminate()
        child.communicate(timeout=30)


def describe(name: str, found: Latencies, seen: Watch) -> str:
    p50, p99 = (percentile(found.delivered_ms, share) for share in (0.5, 0.99))
    return (
        f"{name:7} {len(found.delivered_ms)} of {len(found.sent_at)} delivered: "
        f"p50 {p50:.1f} ms, p99 {p99:.1f} ms, max {max(found.delivered_ms):.1f} ms; "
        f"store {seen.redis_bytes / 2**20:.1f} MiB, instance {seen.instance_bytes / 2**20:.1f} MiB at most"
    )


async def phase(there: Stand, load: Load, store: redis.Redis, name: str, seconds: float) -> None:
    seen = Watch()
    watching = asyncio.create_task(watch(there, store, seen))
    found = await load.paced(PER_S, seconds)
    watching.cancel()
    click.echo(describe(name, found, seen))


async def run(there: Stand, seconds: float) -> None:
    tokens = Tokens(there.settings)
    store = redis.Redis.from_url(there.url)
    store.config_set("maxmemory", MAX_MEMORY)
    load = Load(there.ports, tokens, PAIRS, 1)
    await load.open()
    await phase(there, load, store, "before", QUIET_S)
    with attackers(there, tokens.make(f"{TENANT}/mallory", "send receive", 3_600), seconds) as children:
        await phase(there, load, store, "during", seconds)
        for child, name in zip(children, ("the stranger", "the ordinary one"), strict=True):
            out, _ = await asyncio.to_thread(child.communicate)
            click.echo(f"        {name}: {out.strip()}")
    ended = time.monotonic()
    await asyncio.sleep(QUIET_S)
    click.echo(f"        {time.monotonic() - ended:.0f} s after they left:")
    await phase(there, load, store, "after", QUIET_S)
    load.close()


@click.command()
@click.option("--seconds", default=60.0, show_default=True, help="How long the attack lasts.")
def main(seconds: float) -> None:
    """Attack a relay of its own with the default limits, and 256 MiB for the store."""
    with ExitStack() as stack:
        there = stack.enter_context(stand(rate_per_s="", rate_burst="", mailbox_max_messages="", open_tenants=""))
        stack.enter_context(workers(there))
        runner = stack.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
        runner.run(run(there, seconds))


if __name__ == "__main__":
    main()
