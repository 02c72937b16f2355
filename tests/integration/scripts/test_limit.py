"""limit: caps and a rate of its own for one agent, and who gave them."""

from tests.builders import BOB, Desk


async def test_caps_and_rates_are_given_and_taken_away_one_by_one(desk: Desk) -> None:
    await desk.store.limits.set_caps(BOB, 5, None, "acme/root")
    await desk.store.limits.set_rate(BOB, 1, 2, "acme/root")
    given = await desk.store.limits.rate_of(BOB)
    await desk.store.limits.set_caps(BOB, None, None, "acme/eve")

    (agent,) = await desk.store.agents.describe([BOB])
    assert (agent.max_messages, given, await desk.store.limits.rate_of(BOB)) == (None, (1, 2), (1, 2))
    await desk.store.limits.set_rate(BOB, None, None, "acme/eve")
    assert await desk.store.limits.rate_of(BOB) is None
    size = desk.store.settings.mailbox_max_bytes
    assert [(event.who, event.to, event.reason) for event in desk.events("changed")] == [
        ("acme/root", "bob", f"caps 5, {size}"),
        ("acme/root", "bob", "rate 1, 2"),
        ("acme/eve", "bob", "caps are now those of all"),
        ("acme/eve", "bob", "rate is now that of all"),
    ]


async def test_half_of_a_limit_takes_the_other_half_from_the_relay(desk: Desk) -> None:
    await desk.store.limits.set_rate(BOB, None, 7, "acme/root")

    assert await desk.store.limits.rate_of(BOB) == (desk.store.settings.rate_per_s, 7)
