"""peek: a look into a mailbox that leases nothing."""

import pytest

from relay.store.mailbox.lookup import PeekedMessage
from tests.builders import BOB, CAROL, NOON_MS, Desk, a_message

FIRST = (1, "")


async def peek(desk: Desk, limit: int = 100, state: str = "", kind: str | None = None) -> list[PeekedMessage]:
    """All pages."""
    cursor, seen = FIRST, []
    while cursor is not None:
        cursor, page = await desk.store.lookup.peek(BOB, cursor, limit, state, kind)
        assert len(page) <= limit
        seen += page
    return seen


def ids(seen: list[PeekedMessage]) -> list[str]:
    return [one.head.id for one in seen]


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
async def test_pages_go_through_all_lanes_in_the_order_of_delivery(desk: Desk, limit: int) -> None:
    await desk.send(*(a_message(f"m-{n}", priority=n % 3) for n in range(9)))

    seen = await peek(desk, limit)

    assert ids(seen) == [f"m-{n}" for n in (2, 5, 8, 1, 4, 7, 0, 3, 6)]
    assert desk.holders() == {}


async def test_queued_held_and_delayed_are_told_apart(desk: Desk) -> None:
    held, failed, _, _ = await desk.send(
        a_message("held"), a_message("failed"), a_message("queued"), a_message("later", delay_s=60)
    )
    bob = await desk.join()
    await desk.take(bob, room=2)
    await desk.nack(bob, failed.entry, delay_s=30)

    found = await peek(desk)
    seen = {id: (one.state, one.attempt, one.waiting.holder) for id, one in zip(ids(found), found, strict=True)}

    assert seen == {
        "held": ("held", 1, bob.name),
        "failed": ("delayed", 2, ""),
        "queued": ("queued", 1, ""),
        "later": ("delayed", 1, ""),
    }
    assert found[0].entry == held.entry
    assert {word: ids(await peek(desk, state=word)) for word in ("queued", "held", "delayed")} == {
        "queued": ["queued"],
        "held": ["held"],
        "delayed": ["failed", "later"],
    }


async def test_only_messages_of_a_type(desk: Desk) -> None:
    await desk.send(a_message("1", type="a"), a_message("2", type="b"), a_message("3"), a_message("4", type="a\tb"))

    found = [ids(await peek(desk, kind=kind)) for kind in ("a", "b", "a\tb", "", "c")]

    assert found == [["1"], ["2"], ["4"], ["3"], []]


async def test_what_has_expired_is_not_shown(desk: Desk) -> None:
    await desk.send(a_message("short", ttl_s=5), a_message("long"))
    desk.clock.advance(5)

    assert ids(await peek(desk)) == ["long"]


async def test_an_empty_mailbox_ends_at_once(desk: Desk) -> None:
    assert await desk.store.lookup.peek(BOB, FIRST, 10, "", None) == (None, [])


async def test_a_look_is_bounded_also_when_nothing_fits(desk: Desk) -> None:
    for start in range(0, 1_500, 500):
        await desk.store.limits.set_caps(BOB, 10_000, None)
        await desk.send(*(a_message(f"m-{n}") for n in range(start, start + 500)))

    cursor, page = await desk.store.lookup.peek(BOB, FIRST, 10, "held", None)
    end, rest = await desk.store.lookup.peek(BOB, cursor or FIRST, 10, "held", None)

    assert (cursor is not None, page) == (True, [])
    assert (end, rest) == (None, [])


async def test_a_page_is_bounded_by_bytes(desk: Desk) -> None:
    await desk.send(*(a_message(f"m-{n}", payload="x" * 60_000) for n in range(100)))

    cursor, page = await desk.store.lookup.peek(BOB, FIRST, 100, "", None)

    assert cursor is not None
    assert 15 < len(page) < 30
    assert len(ids(await peek(desk))) == 100


async def test_bodies_come_only_when_they_are_asked_for(desk: Desk) -> None:
    await desk.send_one(a_message(payload="secret"))

    _, (bare,) = await desk.store.lookup.peek(BOB, FIRST, 10, "", None, with_body=False)
    _, (whole,) = await desk.store.lookup.peek(BOB, FIRST, 10, "", None, with_body=True)

    assert bare.body == b""
    assert b"secret" in whole.body


async def test_each_message_says_why_it_is_not_delivered_and_until_when(desk: Desk) -> None:
    _, failed, _, _ = await desk.send(
        a_message("held"), a_message("failed"), a_message("queued"), a_message("later", delay_s=60, priority=3)
    )
    bob = await desk.join(ack_timeout_s=20, window=1)
    await desk.take(bob, room=2)
    await desk.nack(bob, failed.entry, delay_s=30)

    found = {one.head.id: (one.waiting.why, one.waiting.until_ms) for one in await peek(desk)}

    assert found == {
        "held": ("held by its session", NOON_MS + 20_000),
        "failed": ("backing off after a nack", NOON_MS + 30_000),
        "queued": ("window of its session full", None),
        "later": ("delayed by its sender", NOON_MS + 60_000),
    }


async def test_only_messages_from_a_sender(desk: Desk) -> None:
    await desk.send(a_message("1"), a_message("2"))
    await desk.send_one(a_message("3"), sender=CAROL)

    _, found = await desk.store.lookup.peek(BOB, FIRST, 10, "", None, sender=CAROL)

    assert ids(found) == ["3"]
