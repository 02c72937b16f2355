"""appear: an agent that has proved who it is becomes known."""

from tests.builders import BOB, NOON_MS, Desk


async def appear(desk: Desk) -> None:
    desk.store.agents.appear(BOB)
    await desk.store.pipeline.finish()


async def test_a_new_agent_is_known_and_in_the_list_of_its_tenant(desk: Desk) -> None:
    await appear(desk)

    assert await desk.store.agents.registration(BOB) == {"registered_at_ms": NOON_MS}
    assert desk.redis.zscore(desk.shard_key("roster"), BOB) == 0
    assert desk.redis.hget(desk.shard_key("seen"), BOB) == f"{NOON_MS}\t0"


async def test_a_known_agent_stays_what_it_is_and_was_seen(desk: Desk) -> None:
    await desk.store.agents.register(BOB, mode="shared")
    await desk.store.presence.expect(BOB, NOON_MS + 5_000)
    desk.clock.advance(1)

    await appear(desk)

    assert (await desk.store.agents.registration(BOB) or {})["mode"] == "shared"
    assert desk.redis.hget(desk.shard_key("seen"), BOB) == f"{NOON_MS + 1_000}\t{NOON_MS + 5_000}"


async def test_it_is_said_once_for_a_while(desk: Desk) -> None:
    await appear(desk)
    desk.redis.hdel(desk.shard_key("agents"), BOB)

    await appear(desk)

    assert await desk.store.agents.registration(BOB) is None
