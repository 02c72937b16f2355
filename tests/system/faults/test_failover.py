"""Failovers of a real Sentinel set under load: nothing accepted is lost or stored twice, and nobody waits for long."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack

import pytest

from tests.agents import until
from tests.failovers import Senders, sending, stored
from tests.servers import SentinelSet
from tests.system.conftest import SECRET, Relay

pytestmark = pytest.mark.xdist_group("failovers")

MOST_STALL_S = 20.0  # a former master is demoted after 11 s, and no second failover begins within 12 s of the first
SOME = 100  # messages accepted before and after the failover


@pytest.fixture(scope="module")
def sentinels() -> Iterator[SentinelSet]:
    with SentinelSet() as found:
        yield found


@pytest.fixture(scope="module")
def relay(sentinels: SentinelSet) -> Iterator[Relay]:
    with ExitStack() as stack:
        yield Relay(
            *(stack, sentinels.servers[0], sentinels.url),
            durability="replica",
            mailbox_max_messages=100_000,
            rate_per_s=0,
        )


@pytest.fixture(autouse=True)
async def whole(sentinels: SentinelSet, relay: Relay) -> AsyncIterator[None]:
    """Each test begins and ends with everything running."""
    yield
    for server in (*sentinels.servers, *sentinels.sentinels):
        if not server.is_running:
            server.start()
        elif server.is_paused:
            server.resume()
    await asyncio.to_thread(sentinels.wait_until_whole)
    for instance in (relay.a, relay.b):
        await instance.is_ready()


async def _go_on(load: Senders) -> None:
    enough = len(load.accepted) + SOME
    await until(lambda: len(load.accepted) >= enough, "senders go on", within_s=30)


async def _moves_from(sentinels: SentinelSet, old: object) -> None:
    await until(lambda: sentinels.master is not old, "another server is the master", within_s=30)


async def _nothing_is_lost_or_doubled(sentinels: SentinelSet, load: Senders, to: str) -> None:
    await asyncio.to_thread(sentinels.wait_until_whole)
    found = stored(sentinels.master, to)
    assert load.accepted - found.keys() == set()
    assert [id for id, times in found.items() if times > 1] == []
    assert load.longest_s < MOST_STALL_S
    assert set(load.refusals) <= {"store_unavailable"}


async def test_a_planned_failover_loses_nothing_that_was_accepted(sentinels: SentinelSet, relay: Relay) -> None:
    to, old = f"t{secrets.token_hex(4)}/absent", sentinels.master
    async with sending([relay.a.url, relay.b.url], SECRET, to) as load:
        await _go_on(load)
        sentinels.fail_over()
        await _moves_from(sentinels, old)
        await _go_on(load)

    await _nothing_is_lost_or_doubled(sentinels, load, to)


async def test_a_killed_master_takes_nothing_with_it_that_was_accepted(sentinels: SentinelSet, relay: Relay) -> None:
    to, old = f"t{secrets.token_hex(4)}/absent", sentinels.master
    async with sending([relay.a.url, relay.b.url], SECRET, to) as load:
        await _go_on(load)
        old.kill()
        await _moves_from(sentinels, old)
        await _go_on(load)

    old.start()
    await _nothing_is_lost_or_doubled(sentinels, load, to)


async def test_a_hung_sentinel_does_not_hold_up_a_failover(sentinels: SentinelSet, relay: Relay) -> None:
    to, old = f"t{secrets.token_hex(4)}/absent", sentinels.master
    sentinels.sentinels[0].pause()
    async with sending([relay.a.url, relay.b.url], SECRET, to) as load:
        await _go_on(load)
        old.kill()
        await _moves_from(sentinels, old)
        await _go_on(load)

    sentinels.sentinels[0].resume()
    old.start()
    await _nothing_is_lost_or_doubled(sentinels, load, to)
