"""A message's life leaves nothing behind that only the garbage collector can free: it stops an instance to do so."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp

from tests.agents import Agent, make_token, message
from tests.servers import RealServer
from tests.serving import SECRET, serving

LIVES = 20


@contextmanager
def collected() -> Iterator[list[str]]:
    """What of the relay only the collector could free, once the block has ended."""
    found: list[str] = []
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        found += [str(thing) for thing in gc.garbage if _module(thing).startswith("relay.")]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def _module(thing: object) -> str:
    """Where a function or an object of a class of ours is defined."""
    return str(getattr(thing, "__module__", "") or type(thing).__module__)


async def live(alice: Agent, bob: Agent, name: str) -> None:
    """Send, accepted, deliver, release, deliver, ack, receipt."""
    await alice.sent(message(name, "bob"))
    delivery = await bob.delivery()
    await bob.say("release", entries=[delivery["entry"]])
    delivery = await bob.delivery()
    await bob.say("ack", entries=[delivery["entry"]])
    receipts = await alice.expect("receipts")
    await alice.say("receipts_ack", cursor=receipts["cursor"])


async def live_over_http(alice: aiohttp.ClientSession, carol: aiohttp.ClientSession, name: str) -> None:
    """Send, lease, release, lease, ack; each caller on one connection."""
    async with alice.post("/v1/agents/carol/messages", json={"id": name, "payload": 1}) as sent:
        assert sent.status == 202
    for how in ("release", "ack"):
        async with carol.post("/v1/agents/carol/lease", json={"consumer": "w1"}) as answer:
            (leased,) = (await answer.json())["messages"]
        path, body = f"/v1/agents/carol/entries/{leased['entry']}/{how}", {"lock_token": leased["lock_token"]}
        async with carol.post(path, json=body) as settled:
            assert settled.status == 200


def caller(url: str, name: str) -> aiohttp.ClientSession:
    token = make_token(SECRET, f"acme/{name}")
    return aiohttp.ClientSession(url, headers={"Authorization": f"Bearer {token}"})


async def test_a_life_over_http_leaves_no_circles(redis_server: RealServer) -> None:
    async with (
        serving(redis_server.url, open_tenants=("*",)) as url,
        caller(url, "alice") as alice,
        caller(url, "carol") as carol,
    ):
        await live_over_http(alice, carol, "the first")

        with collected() as found:
            for n in range(LIVES):
                await live_over_http(alice, carol, f"m-{n}")

    assert found == []


async def test_a_life_leaves_no_circles(redis_server: RealServer) -> None:
    async with serving(redis_server.url, open_tenants=("*",)) as url:
        alice, bob = [await Agent.connect(url, f"acme/{name}") for name in ("alice", "bob")]
        await alice.authenticate(token=make_token(SECRET, "acme/alice"))
        await bob.authenticate(token=make_token(SECRET, "acme/bob"))
        await live(alice, bob, "the first, which makes what stays")

        with collected() as found:
            for n in range(LIVES):
                await live(alice, bob, f"m-{n}")

        await alice.close()
        await bob.close()
    assert found == []
