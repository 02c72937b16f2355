"""dead: a page of a dead-letter box."""

import pytest

from tests.builders import BOB, Desk, a_message


async def bury(desk: Desk, count: int, size: int = 10) -> None:
    await desk.send(*(a_message(f"m-{n}", payload="x" * size) for n in range(count)))
    bob = await desk.join()
    while taken := await desk.take(bob, room=count):  # of large ones a few at a time
        await desk.nack(bob, *(row.entry for row in taken), retry=False)


@pytest.mark.parametrize("limit", [1, 2, 5, 100])
async def test_pages_go_through_the_box(desk: Desk, limit: int) -> None:
    await bury(desk, 5)
    following: str | None = ""
    found: list[str] = []

    while following is not None:
        following, page = await desk.store.dead_letters.page(BOB, following, limit)
        assert len(page) <= limit
        found += [letter.head.id for letter in page]

    assert found == [f"m-{n}" for n in range(5)]


async def test_an_empty_box_has_one_empty_page(desk: Desk) -> None:
    assert await desk.store.dead_letters.page(BOB, "", 10) == (None, [])


async def test_bodies_come_only_when_they_are_asked_for(desk: Desk) -> None:
    await bury(desk, 1)

    _, (bare,) = await desk.store.dead_letters.page(BOB, "", 10)
    _, (whole,) = await desk.store.dead_letters.page(BOB, "", 10, with_body=True)

    assert bare.body == b""
    assert b"xxxxx" in whole.body
    assert bare.history == whole.history


async def test_a_page_of_large_letters_is_short(desk: Desk) -> None:
    await bury(desk, 40, size=60_000)

    following, page = await desk.store.dead_letters.page(BOB, "", 1_000)

    assert following == page[-1].entry
    assert 10 < len(page) < 30
