"""What instances leave behind is forgotten when nothing of theirs can be on its way any more."""

import asyncio

import pytest

from tests.builders import BOB, Desk
from workers import reaper
from workers.idle import IdleReaper


async def test_the_last_call_of_an_instance_is_forgotten_after_an_hour(desk: Desk) -> None:
    await desk.join()
    key = desk.keys.calls(0)

    desk.clock.advance(3_599)
    await IdleReaper().reap_shard(desk.store, 0, desk.clock.now_ms())
    kept = desk.redis.hkeys(key)
    desk.clock.advance(3_602)
    await IdleReaper().reap_shard(desk.store, 0, desk.clock.now_ms())

    assert kept == [desk.store.instance]
    assert desk.redis.hkeys(key) == []


MANY = 600  # more than a page, and than a server keeps in one block


@pytest.fixture
async def crowd(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Many sessions of an instance whose lease ends in a second, and one of another."""
    monkeypatch.setattr(reaper, "PAGE", 50)
    names = [f"acme/agent-{number}" for number in range(MANY)]
    await asyncio.gather(*(desk.store.presence.join(name, "gone.1", "exclusive", 1_000, None) for name in names))
    await desk.join()
    return desk


async def test_all_sessions_of_a_dead_instance_end_in_one_round(crowd: Desk) -> None:
    crowd.clock.advance(2)

    ended = await reaper.Reaper().reap_shard(crowd.store, 0, crowd.clock.now_ms())

    assert ended == MANY
    assert crowd.redis.hkeys(crowd.keys.presence(0)) == [BOB]
    assert crowd.redis.hkeys(crowd.keys.instances(0)) == [crowd.store.instance]


async def test_sessions_of_an_instance_that_nobody_knows_end_as_rounds_go_on(crowd: Desk) -> None:
    await crowd.store.presence.forget_instance(0, "gone")
    worker = reaper.Reaper()

    ended = [await worker.reap_shard(crowd.store, 0, crowd.clock.now_ms()) for _ in range(2 * MANY // reaper.PAGE)]

    assert 0 < ended[0] < MANY
    assert sum(ended) == MANY
