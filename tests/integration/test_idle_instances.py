"""What instances leave behind is forgotten when nothing of theirs can be on its way any more."""

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


async def test_the_window_of_a_replaced_session_is_forgotten_with_its_instance(desk: Desk) -> None:
    presence, key = desk.store.presence, desk.keys.windows(0)
    await presence.join(BOB, "killed.1", "exclusive", 1_000, None, window=5)
    await presence.join(BOB, "living.1", "exclusive", 60_000, None, window=5)

    await reaper.reap_shard(desk.store, 0, desk.clock.now_ms())
    kept = desk.redis.hkeys(key)
    desk.clock.advance(2)
    await reaper.reap_shard(desk.store, 0, desk.clock.now_ms())

    assert sorted(kept) == ["killed.1", "living.1"]
    assert desk.redis.hkeys(key) == ["living.1"]
