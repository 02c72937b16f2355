"""Clients that send as many small things as the wire carries: each has its turn, and everybody else has theirs.

Tried, on several sockets at once, before and after authentication: frames that mean nothing, empty fragments, pings,
pongs, one-byte chunks, heads without end, bodies that unpack to a gigabyte. None of the answers is read.
"""

import asyncio
import os
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from statistics import median_low
from typing import Any

import aiohttp
import pytest
import redis

from tests.agents import WAIT_S, message, until
from tests.callers import Caller, soon
from tests.deaf import Bare, Deaf, counted, text_frame
from tests.pace import slowness
from tests.system.conftest import Room

pytestmark = pytest.mark.xdist_group("floods")

SETTINGS = {"recheck_s": 30, "auth_timeout_s": 60, "heartbeat_s": 1}
SOCKETS, MANY_SOCKETS = 6, 48
FLOOD_S = 2.0
SOON_S = 0.15  # of work: half of what it takes when a client that floods is read without turns
MIB = 2**20

BINARY = b"\x82\x80\0\0\0\0"
PING = b"\x89\xfd\0\0\0\0" + b"x" * 125
PONG = b"\x8a\x80\0\0\0\0"
FRAGMENT = b"\x00\x80\0\0\0\0"
BEGUN = b"\x01\x80\0\0\0\0"  # a text frame that goes on in fragments
FRAMES = {
    "binary": BINARY,
    "malformed": text_frame(b"x"),
    "unknown op": text_frame(b'{"op":"x"}'),
    "op ping": text_frame(b'{"op":"ping"}'),
    "ping": PING,
    "pong": PONG,
    "fragments": FRAGMENT,
}


def stranger(room: Room) -> Deaf:
    return Deaf(room.a.url)


def ordinary(room: Room) -> Deaf:
    client = Deaf(room.a.url)
    client.say("auth", token=room.token("eve"), mode="shared")
    return client


def chunked(room: Room, token: str) -> Bare:
    client = Bare(room.a.url)
    head = f"POST /v1/agents/eve/lease HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
    client.say_bytes(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
    return client


def chunked_by_a_stranger(room: Room) -> Bare:
    return chunked(room, "none")


def chunked_by_an_agent(room: Room) -> Bare:
    return chunked(room, room.token("eve"))


@contextmanager
def flooding(client: Bare, data: bytes) -> Iterator["asyncio.Task[None]"]:
    """Says the same once and again, whether it is heard or not, until its time is over or it is shut out."""
    until = time.monotonic() + FLOOD_S

    def flood() -> None:
        with suppress(ConnectionError):
            client.is_heard(data)
            while time.monotonic() < until:
                client.is_heard(data)

    yield asyncio.ensure_future(asyncio.to_thread(flood))


def worked_s(room: Room) -> float:
    """How long the instance has been at work so far: unlike any other time, a busy machine does not lengthen it."""
    fields = Path(f"/proc/{room.a.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def worked_for_others_s(room: Room, until_done: "asyncio.Future[Any]") -> float:
    """How long the instance is at work between somebody else's question and its answer: the median."""
    spent_s: list[float] = []
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as http:
        while not until_done.done():
            before = worked_s(room)
            async with http.get(f"{room.a.url}/healthz") as answer:
                assert answer.status == 200
            spent_s.append(worked_s(room) - before)
            await asyncio.sleep(0.02)
    return median_low(spent_s)


async def flood(
    room: Room, make: Callable[[Room], Bare], data: bytes, begin: bytes = b"", sockets: int = SOCKETS
) -> float:
    with ExitStack() as stack:
        clients = [stack.enter_context(closing(make(room))) for _ in range(sockets)]
        for client in clients:
            client.say_bytes(begin)
        await Caller(room.a.url).get("/healthz")  # by now all of them are connected
        return await worked_for_others_s(
            room, asyncio.gather(*(stack.enter_context(flooding(one, data)) for one in clients))
        )


@pytest.mark.parametrize("who", [stranger, ordinary])
@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
async def test_a_flood_of_small_frames_delays_nobody(room: Room, who: Callable[[Room], Bare], frame: bytes) -> None:
    data = frame * (MIB // len(frame))

    assert await flood(room, who, data, begin=BEGUN if frame is FRAGMENT else b"") < SOON_S * slowness()


@pytest.mark.parametrize("sockets", [SOCKETS, MANY_SOCKETS])
@pytest.mark.parametrize("who", [chunked_by_a_stranger, chunked_by_an_agent])
async def test_a_flood_of_one_byte_chunks_delays_nobody(room: Room, who: Callable[[Room], Bare], sockets: int) -> None:
    assert await flood(room, who, b"1\r\na\r\n" * 100_000, sockets=sockets) < SOON_S * slowness()


async def test_heads_without_end_are_not_kept(room: Room) -> None:
    def resident_bytes() -> int:
        lines = Path(f"/proc/{room.a.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1_024 for line in lines if line.startswith("VmRSS"))

    def asking(_: Room) -> Bare:
        client = Bare(room.a.url)
        client.say_bytes(b"GET /healthz HTTP/1.1\r\nHost: x\r\n")
        return client

    before = resident_bytes()
    for _ in range(3):
        await flood(room, asking, b"".join(b"a%d: b\r\n" % n for n in range(50_000)))

    assert resident_bytes() - before < SOCKETS * 2 * MIB


@pytest.mark.parametrize("token", [False, True])
async def test_a_body_that_unpacks_to_a_gigabyte_is_not_unpacked(room: Room, token: bool) -> None:
    packer = zlib.compressobj(9, wbits=31)
    first, block = (packer.compress(b" " * MIB) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    body = first + block * 1_000  # a block that was flushed stands for itself
    authorization = {"Authorization": f"Bearer {room.token('eve')}"} if token else {}
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json", **authorization}

    async def post() -> int:
        url = f"{room.a.url}/v1/agents/eve/lease"
        async with aiohttp.ClientSession() as http, http.post(url, data=body, headers=headers) as answer:
            return answer.status

    posting = asyncio.gather(*(post() for _ in range(4)))

    assert await worked_for_others_s(room, posting) < 3 * SOON_S * slowness()
    assert set(await posting) == {400 if token else 401}


@pytest.mark.parametrize("frame", [PING, BINARY, FRAMES["malformed"]], ids=["ping", "binary", "malformed"])
async def test_whoever_leaves_while_it_is_not_heard_leaves_nothing_behind(room: Room, frame: bytes) -> None:
    alice = await room.agent("alice")

    with closing(ordinary(room)) as eve:
        await alice.sent(message("m-1", to="eve"))
        await until(lambda: _held(room) == 1)
        while await asyncio.to_thread(eve.is_heard, frame * 10_000):
            pass

    await until(lambda: _held(room) == 0)
    await soon(lambda: counted(room.a.url, "relay_connections"), 1)
    await a_heartbeat(room)
    assert room.a.is_running
    assert (await room.agent("eve")).queue_status["pending"] == 1


async def a_heartbeat(room: Room) -> None:
    """Returns when the instance pings, for which it looks at every socket."""
    async with aiohttp.ClientSession() as http, http.ws_connect(f"{room.a.url}/v1/ws", autoping=False) as socket:
        while (await socket.receive(WAIT_S)).type is not aiohttp.WSMsgType.PING:
            pass


def _held(room: Room) -> int:
    with suppress(redis.ResponseError):  # the mailbox, or its group, is not there yet
        return sum(not holder.startswith("~") for holder, _ in room.holders("eve").values())
    return 0
