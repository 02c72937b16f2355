"""Clients that begin frames and bodies and never end them: an instance keeps only so much, and serves the others."""

import asyncio
from collections.abc import Callable
from contextlib import ExitStack, closing

import pytest

from tests.agents import message
from tests.deaf import Bare, Deaf, counted, until_counted
from tests.hostile.test_slow_readers import peak_bytes
from tests.system.conftest import Room

pytestmark = pytest.mark.xdist_group("partial_input")

MIB = 2**20
BUDGET = 8 * MIB
SETTINGS = {"max_buffer_bytes": BUDGET, "recheck_s": 30}
ROOM = 40 * MIB  # what the rest of a program may take while it works
CLIENTS = 40
HALF = b" " * (3 * MIB)
GIVEN_UP = 'relay_closed_total{code="half_sent"}'


def a_session(room: Room) -> Deaf:
    client = Deaf(room.a.url)
    client.say("auth", token=room.token("eve"), mode="shared")
    return client


def half_a_frame(room: Room) -> Bare:
    client = a_session(room)
    client.say_bytes(b"\x81\xff" + (4_000_000).to_bytes(8) + b"\0\0\0\0")
    client.is_heard(HALF)
    return client


def fragments_with_pings(room: Room) -> Bare:
    """Control frames may stand between fragments, and end nothing."""
    client, size = a_session(room), 2**18
    fragment = b"\xff" + size.to_bytes(8) + b"\0\0\0\0" + b" " * size
    client.say_bytes(b"\x01" + fragment)
    client.is_heard((b"\x89\x80\0\0\0\0\x00" + fragment) * (len(HALF) // size - 1))
    return client


def half_a_body(room: Room) -> Bare:
    client = Bare(room.a.url)
    head = f"POST /v1/agents/eve/lease HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {room.token('eve')}\r\n"
    client.say_bytes(f"{head}Content-Length: 4000000\r\n\r\n".encode())
    client.is_heard(HALF)
    return client


@pytest.mark.parametrize("begin", [half_a_frame, fragments_with_pings, half_a_body])
async def test_what_is_never_ended_is_not_kept_beyond_the_budget(room: Room, begin: Callable[[Room], Bare]) -> None:
    alice, bob = await room.agents("alice", "bob")
    before, given_up = peak_bytes(room.a), await counted(room.a.url, GIVEN_UP)

    with ExitStack() as stack:
        clients = [stack.enter_context(closing(await asyncio.to_thread(begin, room))) for _ in range(CLIENTS)]
        await alice.sent(*(message(f"m-{n}", payload="x" * 60_000) for n in range(40)))  # larger than what counts

        assert (await bob.delivery())["id"] == "m-0"
        assert await asyncio.to_thread(clients[0].is_closed, 10)
        await until_counted(room.a.url, GIVEN_UP, given_up + CLIENTS // 2)
        assert peak_bytes(room.a) - before < BUDGET + ROOM


async def test_large_frames_that_are_whole_count_no_more(room: Room) -> None:
    alice, bob = await room.agent("alice"), await room.agent("bob", window=500)
    given_up = await counted(room.a.url, GIVEN_UP)

    for _ in range(8):
        await alice.sent(*(message(payload="x" * 60_000) for _ in range(40)))
        await bob.ack(*await bob.deliveries(40))

    assert await counted(room.a.url, GIVEN_UP) == given_up
