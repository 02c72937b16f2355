"""What a client still expects, and when it is read more slowly."""

import asyncio

import orjson
import pytest

from relay.core.session.answer_buffer import MAX_EXPECTED, MAX_EXPECTED_BYTES, AnswerBuffer
from relay.errors import NotFound


def a_buffer(sent: list[bytes]) -> AnswerBuffer:
    return AnswerBuffer(sent.append, lambda: "fsync")


async def has_capacity(answers: AnswerBuffer) -> bool:
    waiting = asyncio.ensure_future(answers.wait_for_capacity())
    await asyncio.sleep(0)
    if waiting.done():
        return True
    waiting.cancel()
    return False


async def test_answers_of_one_turn_share_their_frames() -> None:
    sent: list[bytes] = []
    answers = a_buffer(sent)
    answers.expect(3)

    answers.accept("m-1")
    answers.accept_again("m-2", None)
    answers.refuse(NotFound("gone"), id="m-3")
    await asyncio.sleep(0)

    accepted, refused = map(orjson.loads, sent)
    assert (accepted["ids"], accepted["duplicate_ids"]) == (["m-1"], ["m-2"])
    assert [refusal["id"] for refusal in refused["refusals"]] == ["m-3"]
    assert answers.expected == 0


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
    answers = a_buffer([])

    answers.received(size)
    answers.expect(expected)

    assert await has_capacity(answers) is capacity


async def test_large_frames_wait_until_everything_is_answered() -> None:
    answers = a_buffer([])
    answers.received(MAX_EXPECTED_BYTES + 1)
    answers.expect(2)
    waiting = asyncio.ensure_future(answers.wait_for_capacity())
    await asyncio.sleep(0)

    answers.done(1)
    await asyncio.sleep(0)
    still_waiting = not waiting.done()
    answers.done(1)
    await waiting

    assert still_waiting
    assert await has_capacity(answers)


async def test_the_end_waits_for_the_rest_whatever_becomes_of_the_reader() -> None:
    answers = a_buffer([])
    answers.expect(MAX_EXPECTED + 1)
    reading = asyncio.ensure_future(answers.wait_for_capacity())
    ending = asyncio.ensure_future(answers.wait_for_rest())
    await asyncio.sleep(0)

    reading.cancel()
    answers.done(MAX_EXPECTED)
    await asyncio.sleep(0)
    is_early = ending.done()
    answers.done(1)
    await ending

    assert reading.cancelled()
    assert not is_early
