"""Strangers: before it has authenticated a client can cost an instance neither time nor memory.

Tried: large frames and frames that are costly to read, half a frame, a flood behind an auth frame, many frames and a
flood of frames that are no auth, answers that are not read.
"""

import asyncio
import json
import time
from contextlib import closing

import aiohttp
import pytest

from tests.agents import WAIT_S, message
from tests.deaf import Bare, Deaf, counted, text_frame
from tests.pace import slowness
from tests.system.conftest import Room

pytestmark = pytest.mark.xdist_group("strangers")

SETTINGS = {"recheck_s": 30, "rate_per_s": 0, "auth_timeout_s": 60}
COSTLY = '{"op":"send","messages":[{"id":"m","to":"b","payload":["\\ud800",' + '"a",' * 1_000_000 + "1]}]}"
STRANGER_BYTES = 64 * 1024
STRANGER_FRAMES = 100


async def test_a_costly_frame_of_a_stranger_delays_nobody(room: Room) -> None:
    sockets = [await room.socket() for _ in range(4)]
    slowest_s = 0.0

    saying = asyncio.gather(*(socket.say_text(COSTLY) for socket in sockets), return_exceptions=True)
    async with aiohttp.ClientSession() as http:
        for _ in range(20):
            began = time.monotonic()
            async with http.get(f"{room.a.url}/healthz") as answer:
                assert answer.status == 200
            slowest_s = max(slowest_s, time.monotonic() - began)
            await asyncio.sleep(0.02)
    await saying

    assert slowest_s < 2 * slowness()
    assert {await socket.closed() for socket in sockets} == {1009}


@pytest.mark.parametrize("size", [STRANGER_BYTES + 1, 200_000, 4_000_000])
async def test_a_frame_over_64_kib_closes_the_socket_of_a_stranger(room: Room, size: int) -> None:
    socket = await room.socket()
    head = '{"op":"auth","token":"'

    await socket.say_text(head + "x" * (size - len(head) - 2) + '"}')

    assert await socket.closed() == 1009


async def test_an_auth_frame_of_64_kib_is_read(room: Room) -> None:
    alice = await room.socket("alice")
    auth = json.dumps({"op": "auth", "token": room.token("alice"), "x": ""})

    await alice.say_text(auth[:-2] + "x" * (STRANGER_BYTES - len(auth)) + auth[-2:])

    assert (await alice.expect("welcome"))["agent"] == alice.address


async def test_half_a_frame_is_not_kept_for_long(room: Room) -> None:
    head = b"\x81\xff" + (4_000_000).to_bytes(8) + b"\0\0\0\0"
    before = await counted(room.a.url, 'relay_closed_total{code="too_large"}')

    def flood() -> bool:
        client = Deaf(room.a.url)
        try:
            client.say_bytes(head + b"x" * 300_000)
            return client.is_closed(within_s=5)
        finally:
            client.close()

    assert await asyncio.to_thread(flood)
    assert await counted(room.a.url, 'relay_closed_total{code="too_large"}') == before + 1


async def test_what_is_sent_with_the_auth_frame_waits_for_it(room: Room) -> None:
    """A client may send before its welcome, also more than a stranger may."""
    bob = await room.agent("bob")
    alice = await room.socket("alice")
    batch = [message(f"m-{n}", "bob", "x" * 10_000) for n in range(40)]

    await alice.say("auth", token=room.token("alice"))
    await alice.send(*batch)
    await alice.accepted(*(one["id"] for one in batch))

    assert len(await bob.deliveries(40)) == 40


async def test_what_is_no_frame_is_answered_and_may_be_followed_by_auth(room: Room) -> None:
    alice = await room.socket("alice")
    await alice.expect("hello")

    for _ in range(10):
        await alice.say_text("x" * 20_000)
        assert (await alice.error())["code"] == "malformed"
    await alice.say("auth", token=room.token("alice"))

    await alice.expect("welcome")


@pytest.mark.parametrize("kind", [aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.PING])
async def test_a_stranger_says_so_much_and_then_no_more(room: Room, kind: aiohttp.WSMsgType) -> None:
    eve = await room.socket()

    for _ in range(STRANGER_FRAMES + 1):
        await eve.say_bytes(b"x", kind)

    assert await eve.closed() == 4503
    assert f"{STRANGER_FRAMES} frames" in eve.got("closing")[0]["message"]


async def test_a_stranger_that_does_not_read_is_not_heard_for_long(room: Room) -> None:
    frames = text_frame(b"nonsense") * 2_000

    def flood() -> bool:
        client, until = Deaf(room.a.url), time.monotonic() + WAIT_S
        try:
            while time.monotonic() < until:
                if not client.is_heard(frames):
                    return False
        except ConnectionError:
            return False
        finally:
            client.close()
        return True

    assert not await asyncio.to_thread(flood)


async def test_a_bad_token_is_counted_and_logged_without_it(room: Room) -> None:
    before = await counted(room.a.url, 'relay_auth_failures_total{door="websocket"}')
    eve = await room.socket("eve")

    await eve.say("auth", token="not.a.token-of-anybody")
    code = await eve.closed()

    assert code == 4501
    assert await counted(room.a.url, 'relay_auth_failures_total{door="websocket"}') == before + 1
    assert room.a.events("not_authenticated")
    assert "not.a.token-of-anybody" not in str(room.a.lines())


async def test_bare_connections_hold_nothing(room: Room) -> None:
    """What is not even HTTP is answered, and the connection is over."""
    client = await asyncio.to_thread(Bare, room.a.url)
    client.say_bytes(b"\x16\x03\x01 not http\r\n\r\n")

    assert (await asyncio.to_thread(client.rest)).startswith(b"HTTP/1.0 400")
    client.close()


@pytest.mark.parametrize("before", [0, 3])
async def test_a_frame_without_a_mask_closes_the_socket(room: Room, before: int) -> None:
    masked = text_frame(b'{"op":"ping"}')

    with closing(Deaf(room.a.url)) as client:
        client.say_bytes(masked * before + b"\x81\x0d" + b'{"op":"ping"}')
        answer = await asyncio.to_thread(client.rest)

    assert answer.endswith(b"\x88\x02\x03\xea"), "a close frame with 1002"
