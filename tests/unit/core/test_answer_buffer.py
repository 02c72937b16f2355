"""What a client still expects, and when it is read more slowly."""

import asyncio

import orjson
import pytest

from relay.core.session.answer_buffer import MAX_EXPECTED, MAX_EXPECTED_BYTES, ReplyBuffer
from relay.errors import NotFound


def a_buffer(sent: list[bytes]) -> ReplyBuffer:
    return ReplyBuffer(sent.append, lambda: "fsync")


async def has_capacity(replies: ReplyBuffer) -> bool:
    waiting = asyncio.ensure_future(replies.wait_for_capacity())
    await asyncio.sleep(0)
    if waiting.done():
        return True
    waiting.cancel()
    return False


async def test_answers_of_one_turn_share_their_frames() -> None:
    sent: list[bytes] = []
    replies = a_buffer(sent)
    replies.expect(3)

    replies.accept("m-1")
    replies.accept_again("m-2", None)
    replies.refuse(NotFound("gone"), id="m-3")
    await asyncio.sleep(0)

    accepted, refused = map(orjson.loads, sent)
    assert (accepted["ids"], accepted["duplicate_ids"]) == (["m-1"], ["m-2"])
    assert [refusal["id"] for refusal in refused["refusals"]] == ["m-3"]
    assert replies.expected == 0


@pytest.mark.parametrize(
    ("expected", "size", "capacity"),
    [
        (MAX_EXPECTED, 1, True),
        (MAX_EXPECTED + 1, 1, False),
        (1, MAX_EXPECTED_BYTES + 1, False),
        (0, MAX_EXPECTED_BYTES + 1, True),
    ],
)
async def test_who_expects_too_much_is_read_more_slowly(expected: int, size: int, capacity: bool) -> None:
    replies = a_buffer([])

    replies.received(size)
    replies.expect(expected)

    assert await has_capacity(replies) is capacity


async def test_large_frames_wait_until_everything_is_answered() -> None:
    replies = a_buffer([])
    replies.received(MAX_EXPECTED_BYTES + 1)
    replies.expect(2)
    waiting = asyncio.ensure_future(replies.wait_for_capacity())
    await asyncio.sleep(0)

    replies.done(1)
    await asyncio.sleep(0)
    still_waiting = not waiting.done()
    replies.done(1)
    await waiting

    assert still_waiting
    assert await has_capacity(replies)


async def test_the_end_waits_for_the_rest_whatever_becomes_of_the_reader() -> None:
    replies = a_buffer([])
    replies.expect(MAX_EXPECTED + 1)
    reading = asyncio.ensure_future(replies.wait_for_capacity())
    ending = asyncio.ensure_future(replies.wait_for_rest())
    await asyncio.sleep(0)

    reading.cancel()
    replies.done(MAX_EXPECTED)
    await asyncio.sleep(0)
    is_early = ending.done()
    replies.done(1)
    await ending

    assert reading.cancelled()
    assert not is_early
