"""What a client is owed, and when it is read more slowly."""

import asyncio

import orjson
import pytest

from relay.answering import MAX_OWED, MAX_OWED_BYTES, Answers
from relay.errors import NotFound


def answers(sent: list[bytes]) -> Answers:
    return Answers(sent.append, lambda: "fsync")


async def is_calm(owing: Answers) -> bool:
    waiting = asyncio.ensure_future(owing.calm())
    await asyncio.sleep(0)
    if waiting.done():
        return True
    waiting.cancel()
    return False


async def test_answers_of_one_turn_share_their_frames() -> None:
    sent: list[bytes] = []
    owing = answers(sent)
    owing.owe(3)

    owing.accept("m-1", is_duplicate=False)
    owing.accept("m-2", is_duplicate=True)
    owing.refuse(NotFound("gone"), id="m-3")
    await asyncio.sleep(0)

    accepted, refused = map(orjson.loads, sent)
    assert (accepted["ids"], accepted["duplicate_ids"]) == (["m-1"], ["m-2"])
    assert [one["id"] for one in refused["refusals"]] == ["m-3"]
    assert owing.owed == 0


@pytest.mark.parametrize(
    ("owed", "size", "calm"),
    [(MAX_OWED, 1, True), (MAX_OWED + 1, 1, False), (1, MAX_OWED_BYTES + 1, False), (0, MAX_OWED_BYTES + 1, True)],
)
async def test_who_is_owed_too_much_is_read_more_slowly(owed: int, size: int, calm: bool) -> None:
    owing = answers([])

    owing.received(size)
    owing.owe(owed)

    assert await is_calm(owing) is calm


async def test_large_frames_wait_until_everything_is_answered() -> None:
    owing = answers([])
    owing.received(MAX_OWED_BYTES + 1)
    owing.owe(2)
    waiting = asyncio.ensure_future(owing.calm())
    await asyncio.sleep(0)

    owing.paid(1)
    await asyncio.sleep(0)
    still_waiting = not waiting.done()
    owing.paid(1)
    await waiting

    assert still_waiting
    assert await is_calm(owing)
