"""A join that is carried out late replaces nobody: a stopped instance, a stalled link, a client that has gone.

Two things keep it out. A join that was asked for before the session that serves began is late, wherever it was held up.
One that was asked for after that is left alone if its client has gone meanwhile.
"""

import asyncio
import signal
from collections.abc import AsyncIterator

import pytest

from tests.agents import message, until
from tests.callers import soon, watchers
from tests.deaf import counted
from tests.proxy import CutProxy
from tests.system.conftest import STARTS_WITHIN_S, Instance, Room

pytestmark = pytest.mark.xdist_group("store failures")

SETTINGS = {"recheck_s": 30, "heartbeat_s": 60}


def serving(room: Room, name: str) -> list[str]:
    return [line.split("\t")[0] for line in watchers(room, name)]


@pytest.mark.parametrize("goes", [True, False])
async def test_an_instance_that_was_stopped_does_not_serve_an_old_auth(room: Room, goes: bool) -> None:
    instance = room.relay.instance()
    old = await room.socket("bob", at=instance)
    await old.expect("hello")
    instance.signal(signal.SIGSTOP)
    await old.say("auth", token=room.token("bob"))
    await asyncio.sleep(1.2)  # longer than what counts as a stop
    if goes:
        old.vanish()
    new = await room.agent("bob")

    instance.signal(signal.SIGCONT)
    if not goes:
        await old.expect("closing")
        assert await old.closed() == 4000
    await instance.is_ready()
    alice = await room.agent("alice", at=instance)
    await alice.sent(message("m-1"))

    assert (await new.delivery())["id"] == "m-1"
    assert new.is_open
    assert serving(room, "bob") == [new.welcome["session"]]


@pytest.mark.parametrize("unread", [0, 1, 64], ids=["and all is read", "a frame is unread", "much is unread"])
async def test_a_client_that_has_gone_takes_the_mailbox_from_nobody(room: Room, unread: int) -> None:
    """It asked after the session that serves, so that only its absence speaks against it.

    Much is more than an instance reads ahead: behind it, even the end of the connection is not seen.
    """
    instance = room.relay.instance()
    serves = await room.agent("bob")
    gone = await room.socket("bob", at=instance)
    await gone.expect("hello")

    instance.signal(signal.SIGSTOP)
    await gone.say("auth", token=room.token("bob"))
    for _ in range(unread):
        await gone.say_text(" " * 2**15)
    gone.vanish()
    instance.signal(signal.SIGCONT)
    await soon(lambda: counted(instance.url, "relay_connections"), 0)

    assert instance.events("session_began") == []
    await (await room.agent("alice", at=instance)).sent(message("m-1"))
    assert (await serves.delivery())["id"] == "m-1"
    assert serving(room, "bob") == [serves.welcome["session"]]


@pytest.fixture
async def proxy(room: Room) -> AsyncIterator[CutProxy]:
    async with CutProxy(room.relay.server.port) as proxy:
        yield proxy


async def test_a_join_over_a_stalled_link_replaces_nobody(room: Room, proxy: CutProxy) -> None:
    with Instance(**(room.relay.settings | {"redis_url": proxy.url})) as far:
        await until(lambda: far.events("serving"), within_s=STARTS_WITHIN_S)
        await far.is_ready()
        old = await room.socket("bob", at=far)
        await old.expect("hello")
        proxy.hold_from = b"exclusive"
        await old.say("auth", token=room.token("bob"))
        await old.expect("welcome")
        await until(lambda: proxy.hold_requests, "the join waits")

        new = await room.agent("bob")
        proxy.hold_requests = False
        await old.expect("closing")

        assert await old.closed() == 4000
        assert new.is_open
        assert serving(room, "bob") == [new.welcome["session"]]


async def test_a_session_that_its_instance_does_not_know_is_removed_when_mail_comes(room: Room) -> None:
    ghost = f"{(await room.agent('carol')).welcome['session'].partition('.')[0]}.999999"
    address = room.address("bob")
    room.redis.hset(room.keys.presence(room.keys.shard(address)), address, f"{ghost}\texclusive\t1")

    await (await room.agent("alice", at=room.b)).sent(message("m-1"))

    await until(lambda: serving(room, "bob") == [])
