"""register: an agent is made known, or what is known of it changes."""

from tests.builders import BOB, NOON_MS, Desk


async def test_a_new_agent_begins_with_when_it_was_registered(desk: Desk) -> None:
    whole = await desk.store.agents.register(BOB, mode="shared")

    assert whole == {"registered_at_ms": NOON_MS, "mode": "shared"}
    assert await desk.store.agents.registration(BOB) == whole


async def test_a_change_leaves_the_rest_and_null_takes_a_field_away(desk: Desk) -> None:
    await desk.store.agents.register(BOB, mode="shared", key="k1")
    desk.clock.advance(1)
    whole = await desk.store.agents.register(BOB, key=None, card='{"skills":[],"n":12345678901234567}')

    assert whole == {
        "registered_at_ms": NOON_MS,
        "mode": "shared",
        "card": '{"skills":[],"n":12345678901234567}',
    }


async def test_an_agent_that_is_not_known_has_no_registration(desk: Desk) -> None:
    assert await desk.store.agents.registration(BOB) is None


async def test_sessions_hear_of_another_key_and_of_nothing_else(desk: Desk) -> None:
    await desk.store.agents.register(BOB, key="k1")
    await desk.join()
    ears = desk.ears()

    await desk.store.agents.register(BOB, key="k1", mode="shared")
    unchanged = ears.heard()
    await desk.store.agents.register(BOB, key="k2")
    await desk.store.agents.register(BOB, key=None)

    assert unchanged == []
    assert ears.heard() == [f"key\t{BOB}", f"key\t{BOB}"]
