"""A real Cluster that loses and moves masters under load: what is lost, doubled, out of order, and how long it takes.

`python -m bench.cluster --rounds 3`, in a checkout: the servers are those of the tests.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

import click

from bench.servers import RealServer
from relay.store.keys import Keys
from relay.store.redis.servers.slots import slot_of
from tests.clusters import Cluster, say
from tests.flows import Flow, flowing, shard_pairs
from tests.system.conftest import SECRET, Relay

SHARDS = 24
KEYS = Keys(SHARDS, 1_000, 1_000)
WARM_UP_S = 2.0
AFTER_S = 2.0
PACE_S = 0.05
POLL_S = 0.02


@dataclass
class Tally:
    """All rounds of one kind."""

    rounds: int = 0
    accepted: int = 0
    wrong: list[str] = field(default_factory=list)
    refused: int = 0
    again: int = 0
    took_s: list[float] = field(default_factory=list)
    moved_s: list[float] = field(default_factory=list)
    others_s: list[float] = field(default_factory=list)

    def add(self, flows: list[Flow], moved: list[Flow], took_s: float) -> None:
        self.rounds += 1
        self.took_s.append(took_s)
        for flow in flows:
            self.accepted += len(flow.sender.accepted)
            self.refused += flow.sender.refusals.total()
            self.again += flow.recipient.repeats
            try:
                flow.check()
            except AssertionError as error:
                self.wrong.append(str(error))
        self.moved_s.append(max(flow.stall_s() for flow in moved))
        self.others_s.append(max(flow.stall_s() for flow in flows if flow not in moved))

    def row(self, kind: str) -> str:
        counts = f"{self.rounds} | {self.accepted:,} | {len(self.wrong)} | {self.refused:,} | {self.again}"
        spans = " | ".join(f"{max(spans):.2f}" for spans in (self.took_s, self.moved_s, self.others_s))
        return f"| {kind} | {counts} | {spans} |"


def slot(flow: Flow) -> int:
    return slot_of(KEYS.tag(KEYS.shard(flow.sender.to)))


def on(cluster: Cluster, flows: list[Flow], master: RealServer) -> list[Flow]:
    owners = cluster.owners(map(slot, flows))
    return [flow for flow in flows if owners[slot(flow)] is master]


# -- what happens, each to the flows that it returns


async def killed(cluster: Cluster, flows: list[Flow]) -> list[Flow]:
    return await _gone(cluster, flows, RealServer.kill)


async def hung(cluster: Cluster, flows: list[Flow]) -> list[Flow]:
    return await _gone(cluster, flows, RealServer.pause)


async def _gone(cluster: Cluster, flows: list[Flow], how: Callable[[RealServer], None]) -> list[Flow]:
    master = await asyncio.to_thread(
        lambda: next(one for one in cluster.masters() if len(cluster.replicas_of(one)) > 1)
    )
    own = on(cluster, flows, master)
    how(master)
    while len(await asyncio.to_thread(cluster.masters)) < 3:  # noqa: ASYNC110 - nobody else tells
        await asyncio.sleep(POLL_S)
    if master.is_paused:
        master.resume()
    else:
        await asyncio.to_thread(master.start)
    return own


async def planned(cluster: Cluster, flows: list[Flow]) -> list[Flow]:
    master = (await asyncio.to_thread(cluster.masters))[0]
    own = on(cluster, flows, master)
    replica = (await asyncio.to_thread(cluster.replicas_of, master))[0]
    say(replica, "CLUSTER FAILOVER")
    while replica not in await asyncio.to_thread(cluster.masters):  # noqa: ASYNC110 - nobody else tells
        await asyncio.sleep(POLL_S)
    return own


async def resharded(cluster: Cluster, flows: list[Flow]) -> list[Flow]:
    """All shards of one master, which is a third, one after another, and back."""
    masters = await asyncio.to_thread(cluster.masters)
    source, _, target = sorted(masters, key=lambda one: -len(on(cluster, flows, one)))
    own = on(cluster, flows, source)
    for home in (target, source):
        await asyncio.to_thread(_move, cluster, own, home)
    return own


def _move(cluster: Cluster, flows: list[Flow], to: RealServer) -> None:
    for flow in flows:
        cluster.move(slot(flow), to)


async def grown(cluster: Cluster, flows: list[Flow]) -> list[Flow]:
    """A fourth master takes a quarter of the shards, gives them back and goes."""
    own = flows[::4]
    homes = cluster.owners(map(slot, own))
    added = await asyncio.to_thread(cluster.add_master)
    await asyncio.to_thread(lambda: [cluster.move(one, added) for one in homes])
    await asyncio.sleep(AFTER_S)
    await asyncio.to_thread(lambda: [cluster.move(one, home) for one, home in homes.items()])
    await asyncio.to_thread(cluster.remove, added)
    return own


KINDS: dict[str, Callable[[Cluster, list[Flow]], Awaitable[list[Flow]]]] = {
    "planned": planned,
    "killed": killed,
    "hung": hung,
    "resharded": resharded,
    "grown": grown,
}


async def one_round(kind: str, number: int, cluster: Cluster, relay: Relay, tally: Tally) -> None:
    pairs = shard_pairs(f"{kind}-{number}", SHARDS)
    async with flowing([relay.a.url, relay.b.url], SECRET, pairs, PACE_S) as flows:
        await asyncio.sleep(WARM_UP_S)
        for flow in flows:
            flow.start_again()
        began = time.monotonic()
        moved = await KINDS[kind](cluster, flows)
        took_s = time.monotonic() - began
        await asyncio.sleep(AFTER_S)
    await asyncio.to_thread(cluster.wait_until_whole)
    tally.add(flows, moved, took_s)


@click.command()
@click.option("--rounds", default=3, show_default=True, help="Of each kind.")
@click.option("--kinds", default=",".join(KINDS), show_default=True)
@click.option("--durability", type=click.Choice(["memory", "replica"]), default="replica", show_default=True)
def main(rounds: int, kinds: str, durability: str) -> None:
    """Breaks and moves masters again and again, and prints a table."""
    tallies = {kind: Tally() for kind in kinds.split(",")}
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(replicas=1, of_the_first=1))
        settings = {"shards": SHARDS, "durability": durability, "mailbox_max_messages": 1_000_000, "rate_per_s": 0}
        relay = Relay(stack, cluster.servers[0], cluster.url, **settings)
        for number in range(rounds):
            for kind, tally in tallies.items():
                asyncio.run(one_round(kind, number, cluster, relay, tally))
                click.echo(tally.row(kind), err=True)
    click.echo("| what | rounds | accepted | wrong | refused | taken again | took, s | stall there, s | elsewhere, s |")
    click.echo("|---|---|---|---|---|---|---|---|---|")
    for kind, tally in tallies.items():
        click.echo(tally.row(kind))
    for kind, tally in tallies.items():
        for wrong in tally.wrong:
            click.echo(f"{kind}: {wrong[:500]}", err=True)


if __name__ == "__main__":
    main()
