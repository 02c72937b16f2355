"""A client that reads nothing: it is given up, its messages are not, and nobody else waits for it."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from relay.core import output_budget
from tests.agents import Agent, make_token, message, until
from tests.deaf import Bare, Deaf, until_counted
from tests.servers import RealServer
from tests.serving import SECRET, serving


@pytest.fixture
async def url(redis_server: RealServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """An instance in this process, which loses its patience soon."""
    monkeypatch.setattr(output_budget, "SLOW_AFTER_S", 0.5)
    async with serving(redis_server.url, open_tenants=("*",), recheck_s=0.2, max_buffer_bytes=2**16) as url:
        yield url


async def test_a_client_that_does_not_read_is_closed_and_its_messages_wait_for_it(url: str) -> None:
    alice = await Agent.connect(url, "acme/alice")
    await alice.authenticate(token=make_token(SECRET, "acme/alice"))
    carol = await Agent.connect(url, "acme/carol")
    await carol.authenticate(token=make_token(SECRET, "acme/carol"))
    deaf = await asyncio.to_thread(Deaf, url)
    deaf.say("auth", token=make_token(SECRET, "acme/deaf"), window=1_000)

    for n in range(0, 200, 10):
        await alice.sent(*(message(f"m-{n + m}", "deaf", "x" * 60_000) for m in range(10)))
    await alice.sent(message("quick", "carol"))
    assert (await carol.delivery())["id"] == "quick"

    async def is_online() -> bool:
        await alice.say("presence", agents=["deaf"])
        return bool((await alice.expect("presence"))["agents"]["acme/deaf"]["online"])

    for _ in range(1_000):
        if not await is_online():
            break
        await asyncio.sleep(0.02)
    assert not await is_online()
    rest = await asyncio.to_thread(deaf.rest)
    assert len(rest) < 200 * 60_000, "the relay did not push everything into the buffer"

    again = await Agent.connect(url, "acme/deaf")
    await again.authenticate(token=make_token(SECRET, "acme/deaf"), window=1_000)
    assert again.queue_status["pending"] == 200
    found = await again.deliveries(200)
    assert [one["id"] for one in found] == [f"m-{n}" for n in range(200)]
    assert {one["attempt"] for one in found} == {1}
    deaf.close()
    for agent in (alice, carol, again):
        await agent.close()


async def test_a_client_that_reads_late_gets_the_rest_when_it_has_caught_up(url: str) -> None:
    alice = await Agent.connect(url, "acme/alice")
    await alice.authenticate(token=make_token(SECRET, "acme/alice"))
    for n in range(0, 60, 10):
        await alice.sent(*(message(f"l-{n + m}", "late", "x" * 60_000) for m in range(10)))

    late = await Agent.connect(url, "acme/late")
    await late.authenticate(token=make_token(SECRET, "acme/late"), window=1_000)
    found = await late.deliveries(60)

    assert [one["id"] for one in found] == [f"l-{n}" for n in range(60)]
    await until(lambda: late.got("drained"))
    for agent in (alice, late):
        await agent.close()


async def test_a_caller_that_does_not_read_its_answer_is_cut_off(url: str) -> None:
    alice = await Agent.connect(url, "acme/alice")
    await alice.authenticate(token=make_token(SECRET, "acme/alice"))
    deaf = await asyncio.to_thread(Bare, url)
    token = make_token(SECRET, "acme/late")
    request = f"GET /openapi.json HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode()

    deaf.say_bytes(request * 100)
    await until_counted(url, 'relay_closed_total{code="slow"}')
    rest = await asyncio.to_thread(deaf.rest)

    assert rest.count(b"HTTP/1.1 200") < 100
    deaf.close()
    await alice.close()
