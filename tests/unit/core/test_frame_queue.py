"""Frames are dealt with as they come while nothing stands before them, in their order, and in turns."""

import asyncio
from typing import Any
from unittest.mock import Mock

import pytest
from aiohttp import WebSocketError, WSMessage, WSMsgType

from relay.server.framing import FRAMES_A_TURN, LOOK, FrameQueue, MaskedReader
from tests.deaf import text_frame

PONG = WSMessage(WSMsgType.PONG, b"", None)


def text(data: bytes) -> WSMessage:
    return WSMessage(WSMsgType.TEXT, data, None)


class Client:
    """A queue, and what was handed on."""

    def __init__(self, goes_on: bool = True) -> None:
        self.queue = FrameQueue(Mock(_reading_paused=False), 1_000, loop=asyncio.get_running_loop())
        self.queue.on_frame, self.queue.heard = self.handle, self.hear
        self.pongs = 0
        self.goes_on = goes_on
        self.handled: list[bytes] = []

    def handle(self, data: bytes) -> bool:
        self.handled.append(data)
        return self.goes_on

    def hear(self) -> None:
        self.pongs += 1

    def send(self, *frames: WSMessage) -> None:
        for frame in frames:
            self.queue.feed_data(frame, len(frame.data))

    async def listening(self) -> "asyncio.Task[Any]":
        task = asyncio.create_task(self.queue.read())
        await asyncio.sleep(0)
        return task


async def test_a_frame_that_is_awaited_is_handled_at_once() -> None:
    client = Client()
    listening = await client.listening()

    client.send(text(b"1"), text(b"2"))

    assert client.handled == [b"1", b"2"]
    assert not listening.done()
    listening.cancel()


async def test_a_pong_is_heard_and_wakes_nobody() -> None:
    client = Client()
    listening = await client.listening()

    client.send(PONG)
    await asyncio.sleep(0)

    assert (client.pongs, client.handled, listening.done()) == (1, [], False)
    listening.cancel()


async def test_a_pong_before_authentication_is_a_frame_like_others() -> None:
    client = Client()
    client.queue.on_frame = None

    client.send(PONG)

    assert client.pongs == 0
    assert (await client.queue.read()).type is WSMsgType.PONG


async def test_a_frame_that_nobody_waits_for_waits() -> None:
    client = Client()

    client.send(text(b"1"))

    assert client.handled == []
    assert (await client.queue.read()).data == b"1"


async def test_what_comes_behind_a_frame_that_waits_waits_too() -> None:
    client = Client()
    listening = await client.listening()

    client.send(WSMessage(WSMsgType.PING, b"", None), text(b"1"))

    assert client.handled == []
    assert (await listening).type is WSMsgType.PING
    assert (await client.queue.read()).data == b"1"


async def test_the_listener_looks_after_what_a_frame_has_begun_before_the_next_is_handled() -> None:
    client = Client(goes_on=False)
    listening = await client.listening()

    client.send(text(b"1"), text(b"2"))

    assert client.handled == [b"1"]
    assert await listening is LOOK
    assert (await client.queue.read()).data == b"2"


async def test_a_flood_of_small_frames_leaves_others_their_turn() -> None:
    client = Client()
    listening = await client.listening()

    client.send(*[text(b"x")] * (FRAMES_A_TURN + 1))

    assert len(client.handled) == FRAMES_A_TURN
    assert (await listening).data == b"x"


class Reading:
    """A reader, given bytes in pieces of some size."""

    def __init__(self) -> None:
        self.queue = FrameQueue(Mock(_reading_paused=False), 2**20, loop=asyncio.get_running_loop())
        self.reader = MaskedReader(self.queue, 2**20)

    def read(self, data: bytes, piece: int) -> list[bytes]:
        for start in range(0, len(data), piece):
            self.reader.feed_data(data[start : start + piece])
        return [bytes(one.data) for one, _ in self.queue._buffer]


PAYLOADS = [b"x" * size for size in (0, 1, 125, 126, 300, 65_535, 65_536)]
PIECES = [1, 2, 3, 7, 1_000, 2**20]


@pytest.mark.parametrize("piece", PIECES)
async def test_masked_frames_are_read_however_they_are_cut(piece: int) -> None:
    reading = Reading()

    assert reading.read(b"".join(map(text_frame, PAYLOADS)), piece) == PAYLOADS
    assert reading.queue.exception() is None


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("first", PAYLOADS, ids=len)
async def test_a_frame_without_a_mask_is_found_however_it_is_cut(piece: int, first: bytes) -> None:
    reading = Reading()

    reading.read(text_frame(first) + b"\x81\x01x", piece)

    error = reading.queue.exception()
    assert isinstance(error, WebSocketError)
    assert error.code == 1002
