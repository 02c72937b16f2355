"""A Cluster that loses, moves and gains masters under load: nothing accepted is lost or doubled, and order is kept."""

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from relay.store.keys import Keys
from relay.store.redis.servers.slots import slot_of
from tests.agents import until
from tests.clusters import Cluster
from tests.flows import Flow, flowing, shard_pairs
from tests.servers import RealServer
from tests.system.conftest import SECRET, Relay

pytestmark = pytest.mark.xdist_group("cluster-load")

SHARDS = 12
KEYS = Keys(SHARDS, 1_000, 1_000)
FAILOVER_STALL_S = 10.0  # the nodes need two seconds to notice, and up to two to decide
OTHERS_STALL_S = 1.0  # more than what a busy machine makes of it anyway
MOVE_STALL_S = 1.0  # the same; a slot of a few keys moves in a tenth of that
SOME = 100  # messages of each flow, before and after
PACE_S = 0.02


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """With two replicas for the first master: one that is promoted has a replica to wait for."""
    with Cluster(replicas=1, of_the_first=1) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def urls(cluster: Cluster) -> Iterator[list[str]]:
    with ExitStack() as stack:
        relay = Relay(
            *(stack, cluster.servers[0], cluster.url),
            shards=SHARDS,
            durability="replica",
            mailbox_max_messages=100_000,
            rate_per_s=0,
        )
        yield [relay.a.url, relay.b.url]


def a_flow_a_shard() -> list[tuple[str, str]]:
    """A sender and a recipient, both in the same shard, for every shard."""
    return shard_pairs(f"t{secrets.token_hex(4)}", SHARDS)


def slot(flow: Flow) -> int:
    return slot_of(KEYS.tag(KEYS.shard(flow.sender.to)))


def slots_of(flows: list[Flow]) -> set[int]:
    return {slot(flow) for flow in flows}


def on(cluster: Cluster, flows: list[Flow], master: RealServer) -> list[Flow]:
    """The flows through one master."""
    owners = cluster.owners(slots_of(flows))
    return [flow for flow in flows if owners[slot(flow)] is master]


async def go_on(flows: list[Flow]) -> None:
    """Until every sender has got further."""
    enough = [len(flow.sender.accepted) + SOME for flow in flows]
    await until(
        lambda: all(len(flow.sender.accepted) >= count for flow, count in zip(flows, enough, strict=True)),
        "all flows go on",
        within_s=60,
    )


async def test_a_killed_master_takes_nothing_with_it_and_holds_up_nobody_else(
    cluster: Cluster, urls: list[str]
) -> None:
    killed = cluster.servers[0]
    async with flowing(urls, SECRET, a_flow_a_shard(), PACE_S) as flows:
        await go_on(flows)
        own = on(cluster, flows, killed)
        as_usual_s = max(flow.start_again() for flow in flows)

        killed.kill()
        await go_on(flows)

    killed.start()
    for flow in flows:
        flow.check()
    assert own
    assert max(flow.stall_s() for flow in own) < FAILOVER_STALL_S
    assert max(flow.stall_s() for flow in flows if flow not in own) < as_usual_s + OTHERS_STALL_S


async def test_a_third_of_the_slots_moves_while_everybody_works(cluster: Cluster, urls: list[str]) -> None:
    await asyncio.to_thread(cluster.wait_until_whole)
    source, target, *_ = cluster.masters()
    async with flowing(urls, SECRET, a_flow_a_shard(), PACE_S) as flows:
        await go_on(flows)
        own = on(cluster, flows, source)
        as_usual_s = max(flow.start_again() for flow in flows)
        for moved in slots_of(own):
            await asyncio.to_thread(cluster.move, moved, target)
        await go_on(flows)

    for flow in flows:
        flow.check()
        assert not flow.sender.refusals
        assert not flow.closings()
        assert flow.stall_s() < as_usual_s + MOVE_STALL_S
    assert own


async def test_a_master_comes_and_goes_while_everybody_works(cluster: Cluster, urls: list[str]) -> None:
    await asyncio.to_thread(cluster.wait_until_whole)
    async with flowing(urls, SECRET, a_flow_a_shard(), PACE_S) as flows:
        await go_on(flows)
        homes = cluster.owners(slots_of(flows[::3]))
        added = await asyncio.to_thread(cluster.add_master)
        for moved in homes:
            await asyncio.to_thread(cluster.move, moved, added)
        await go_on(flows)
        for moved, home in homes.items():
            await asyncio.to_thread(cluster.move, moved, home)
        await asyncio.to_thread(cluster.remove, added)
        await go_on(flows)

    for flow in flows:
        flow.check()
        assert not flow.closings()
