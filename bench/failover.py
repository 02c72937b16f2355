"""Failovers of a real Sentinel set under load: what was accepted and is lost, what is stored twice, how long it takes.

`python -m bench.failover --rounds 20`, in a checkout: the servers are those of the tests.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

import click

from bench.sentinel_set import SentinelSet
from bench.servers import RealServer
from tests.failovers import Senders, sending, stored
from tests.system.conftest import SECRET, Relay

WARM_UP_S = 1.0
AFTER_S = 1.0  # how long the load goes on after it has got through again
POLL_S = 0.02


@dataclass
class Tally:
    """All rounds of one kind."""

    rounds: int = 0
    accepted: int = 0
    lost: int = 0
    twice: int = 0
    refused: int = 0
    stalls_s: list[float] = field(default_factory=list)
    away_s: list[float] = field(default_factory=list)  # until Sentinels had made a master that has a replica

    def add(self, load: Senders, server: RealServer, to: str, away_s: float) -> None:
        found = stored(server, to)
        self.rounds += 1
        self.accepted += len(load.accepted)
        self.lost += len(load.accepted - found.keys())
        self.twice += sum(times > 1 for times in found.values())
        self.refused += load.refusals.total()
        self.stalls_s.append(load.longest_s)
        self.away_s.append(away_s)

    def row(self, kind: str) -> str:
        median = sorted(self.stalls_s)[len(self.stalls_s) // 2]
        counts = f"{self.rounds} | {self.accepted:,} | {self.lost} | {self.twice} | {self.refused:,}"
        return f"| {kind} | {counts} | {median:.1f} | {max(self.stalls_s):.1f} | {max(self.away_s):.1f} |"


# How the master goes: planned while it runs, by kill -9, or by hanging and waking up as a master of old.
KINDS: dict[str, Callable[[SentinelSet, RealServer], None]] = {
    "planned": lambda sentinels, _: sentinels.fail_over(),
    "killed": lambda _, master: master.kill(),
    "hung": lambda _, master: master.pause(),
}


async def one_round(kind: str, number: int, sentinels: SentinelSet, relay: Relay, tally: Tally) -> None:
    to, old = f"bench/{kind}-{number}", sentinels.master
    async with sending([relay.a.url, relay.b.url], SECRET, to) as load:
        await asyncio.sleep(WARM_UP_S)
        began = time.monotonic()
        KINDS[kind](sentinels, old)
        while not _has_moved(sentinels, old):  # noqa: ASYNC110 - nobody else tells
            await asyncio.sleep(POLL_S)
        away_s = time.monotonic() - began
        if old.is_paused:
            old.resume()
        await _more(load)
        await asyncio.sleep(AFTER_S)
    if not old.is_running:
        old.start()
    await asyncio.to_thread(sentinels.wait_until_whole)
    tally.add(load, sentinels.master, to, away_s)


def _has_moved(sentinels: SentinelSet, old: RealServer) -> bool:
    """Whether another server is the master and has a replica."""
    master = sentinels.master
    if master is old:
        return False
    with master.client() as client:
        state = client.info("replication")
    return any(state[name]["state"] == "online" for name in ("slave0", "slave1") if name in state)


async def _more(load: Senders) -> None:
    """Until something is accepted again."""
    before = len(load.accepted)
    while len(load.accepted) == before:  # noqa: ASYNC110 - nobody else tells
        await asyncio.sleep(POLL_S)


@click.command()
@click.option("--rounds", default=20, show_default=True, help="Of each kind.")
@click.option("--kinds", default="planned,killed,hung", show_default=True)
@click.option("--durability", type=click.Choice(["memory", "replica"]), default="replica", show_default=True)
@click.option("--min-replicas", default=0, show_default=True, help="The servers' min-replicas-to-write.")
@click.option("--down-after-ms", default=1_000, show_default=True, help="The Sentinels' down-after-milliseconds.")
def main(rounds: int, kinds: str, durability: str, min_replicas: int, down_after_ms: int) -> None:
    """Fails over again and again, and prints a table."""
    options = {"min-replicas-to-write": str(min_replicas), "min-replicas-max-lag": "1"}
    tallies = {kind: Tally() for kind in kinds.split(",")}
    began = time.monotonic()
    with ExitStack() as stack:
        sentinels = stack.enter_context(SentinelSet(options, down_after_ms))
        relay = Relay(
            *(stack, sentinels.servers[0], sentinels.url),
            durability=durability,
            mailbox_max_messages=1_000_000,
            rate_per_s=0,
        )
        for number in range(rounds):
            for kind, tally in tallies.items():
                asyncio.run(one_round(kind, number, sentinels, relay, tally))
                click.echo(tally.row(kind), err=True)
    click.echo("| failover | rounds | accepted | lost | stored twice | refused | median stall | longest | Sentinels' |")
    click.echo("|---|---|---|---|---|---|---|---|---|")
    for kind, tally in tallies.items():
        click.echo(tally.row(kind))
    click.echo(f"\n{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
