"""What more masters are worth: `python -m bench.masters`.

Where there are fewer cores than masters the clock cannot show it, so processor time is counted: a master can carry what
its own time a message allows, and the busiest one is the limit of all. The masters share one core, the rest has the
others: so the masters are what everybody waits for, however many there are, and batches are as large as they get.
"""

import asyncio
import os
import secrets
from contextlib import ExitStack

import click
import uvloop

from bench.load import BATCH, Load
from bench.real_cluster import RealCluster
from bench.servers import RealServer
from bench.stand import MAILBOX_MAX, RATE, cpu_seconds, instance
from relay.auth import Tokens
from relay.settings import Settings

PAIRS = 100
INSTANCES = 2


async def measure(ports: list[int], settings: Settings, servers: list[RealServer], seconds: float) -> list[float]:
    """Messages a second, then microseconds of each server a message."""
    load = Load(ports, Tokens(settings), PAIRS, BATCH)
    await load.open()
    await load.flat_out(1.0, warm=PAIRS * BATCH)
    before, done = [cpu_seconds(server.pid) for server in servers], load.completed
    rate = await load.flat_out(seconds)
    count = load.completed - done
    load.close()
    spent = [cpu_seconds(server.pid) - then for server, then in zip(servers, before, strict=True)]
    return [rate, *(1e6 * one / count for one in spent)]


def on_masters(masters: int, seconds: float) -> list[float]:
    secret = secrets.token_hex(32)
    settings = Settings(token_secret=secret, open_tenants=("*",))
    with ExitStack() as stack:
        cluster = stack.enter_context(RealCluster(masters=masters))
        environ = {name: value for name, value in os.environ.items() if not name.startswith("RELAY_")} | {
            "RELAY_REDIS_URL": cluster.url,
            "RELAY_TOKEN_SECRET": secret,
            "RELAY_OPEN_TENANTS": "*",
            "RELAY_RATE_PER_S": RATE,
            "RELAY_RATE_BURST": RATE,
            "RELAY_MAILBOX_MAX_MESSAGES": str(MAILBOX_MAX),
            "RELAY_LOG_FORMAT": "text",
        }
        children = [stack.enter_context(instance("relay.cli", environ)) for _ in range(INSTANCES)]
        _keep_apart([server.pid for server in cluster.servers], [os.getpid(), *(child.pid for child, _ in children)])
        ports = [port for _, port in children]
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(measure(ports, settings, cluster.servers, seconds))


def _keep_apart(servers: list[int], others: list[int]) -> None:
    cores = sorted(os.sched_getaffinity(0))
    for pids, own in ((servers, cores[:1]), (others, cores[1:] or cores)):
        for pid in pids:
            os.sched_setaffinity(pid, own)


@click.command()
@click.option("--seconds", default=10.0, show_default=True, help="For each number of masters.")
@click.option("--rounds", default=1, show_default=True)
def main(seconds: float, rounds: int) -> None:
    """Measures one, two and three masters in turn, and prints a table of the best round of each."""
    found: dict[int, list[float]] = {}
    for _ in range(rounds):
        for masters in (1, 2, 3):
            one = on_masters(masters, seconds)
            if masters not in found or max(one[1:]) < max(found[masters][1:]):
                found[masters] = one
    click.echo("| masters | msg/s here | Redis, µs a message, all | the busiest | it could carry, msg/s | times one |")
    click.echo("|---|---|---|---|---|---|")
    alone_us = max(found[1][1:])
    for masters, (rate, *each_us) in found.items():
        most = max(each_us)
        row = f"{rate:,.0f} | {sum(each_us):.1f} | {most:.1f} | {1e6 / most:,.0f} | {alone_us / most:.2f}"
        click.echo(f"| {masters} | {row} |")


if __name__ == "__main__":
    main()
