"""Clients that do not read: whatever is sent to them, an instance keeps to its budget and serves the others.

Tried: subscribers, mailboxes, receipts, answers to their own frames, leases over HTTP, tasks with a megabyte of
answers, asked for, followed, and followed by A2A; none of it is read.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
import redis

from tests.agents import Agent, message
from tests.callers import caller, soon
from tests.deaf import Bare, Deaf, counted, text_frame
from tests.system.conftest import Instance, Room

pytestmark = pytest.mark.xdist_group("slow_readers")

MIB = 2**20
BUDGET = 4 * MIB
SETTINGS = {"max_buffer_bytes": BUDGET, "rate_per_s": 0, "recheck_s": 30, "mailbox_max_bytes": 64 * MIB}
ROOM = 24 * MIB  # what the rest of a program may take while it works: copies, pages that are not given back
SAID = 24 * MIB  # far beyond what the system keeps for a program that does not read
LARGE = "x" * 60_000
RECEIPTS = "relay_receipts_total"


def peak_bytes(instance: Instance) -> int:
    lines = Path(f"/proc/{instance.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1_024 for line in lines if line.startswith("VmHWM"))


@contextmanager
def deaf(count: int, make: Callable[[], Bare]) -> Iterator[list[Bare]]:
    with ExitStack() as stack:
        clients = [make() for _ in range(count)]
        for client in clients:
            stack.callback(client.close)
        yield clients


@pytest.fixture
async def alice(room: Room) -> Room:
    """Warms an instance up: the code and buffers of a quiet minute are not the attacker's."""
    bob, carol = await room.agents("warm-bob", "warm-carol")
    for _ in range(3):
        await carol.sent(*(message(to="warm-bob", payload=LARGE) for _ in range(30)))
        await bob.ack(*(await bob.deliveries(30)))
    return room


async def at_rest(agent: Agent, count: Callable[[], Awaitable[float]], least: float) -> None:
    """Returns when there is so much, and no more comes while questions pass through the store."""
    before = -1.0
    while (now := await count()) < least or now != before:
        before = now
        await agent.settled_down()


async def held(room: Room) -> float:
    """How many messages the deaf ones have been given."""
    with suppress(redis.ResponseError):  # one of them has not come yet
        return sum(len(room.holders(f"deaf-{n}")) for n in range(8))
    return 0


def a_session(room: Room, name: str, **auth: object) -> Deaf:
    client = Deaf(room.a.url)
    client.say("auth", token=room.token(name), **auth)
    return client


async def test_subscribers_get_no_more_events_than_they_read(alice: Room) -> None:
    room = alice
    reader, publisher = await room.agent("reader"), await room.agent("publisher")
    await reader.say("subscribe", topics=["news"])
    await reader.expect("subscribed")
    before = peak_bytes(room.a)

    with deaf(12, lambda: a_session(room, "deaf", mode="shared")) as clients:
        for client in clients:
            client.say("subscribe", topics=["news"])  # type: ignore[attr-defined]
        for n in range(200):
            await publisher.say("publish", topic="news", payload=LARGE)
            if n % 10 == 9:
                await publisher.say("ping")
                await publisher.expect("pong")
        assert (await reader.expect("event"))["payload"] == LARGE

        assert await counted(room.a.url, "relay_events_dropped_total") > 0
        assert peak_bytes(room.a) - before < BUDGET + ROOM


async def test_mailboxes_that_are_not_read_stay_in_the_store(alice: Room) -> None:
    room = alice
    sender = await room.agent("sender")
    for n in range(8):
        for _ in range(4):
            await sender.sent(*(message(to=f"deaf-{n}", payload=LARGE) for _ in range(40)))
    numbers = iter(range(8))
    before = peak_bytes(room.a)

    with deaf(8, lambda: a_session(room, f"deaf-{next(numbers)}", window=1_000)):
        quick = await room.agent("quick")
        await at_rest(quick, lambda: held(room), least=8)
        await sender.sent(message("now", to="quick"))
        assert (await quick.delivery())["id"] == "now"

        assert peak_bytes(room.a) - before < BUDGET + ROOM


async def test_receipts_that_are_not_read_stay_in_the_store(alice: Room) -> None:
    room = alice
    one = f'm\tbob\t5\t\t3\tdead\t"{"x" * 1_000}"'
    fields = {"count": 4, "receipts": "\n".join(["7", *[one] * 4])}
    with room.redis.pipeline() as pipe:
        for _ in range(2_000):
            pipe.xadd(room.keys.receipts(room.address("deaf")), fields)  # type: ignore[arg-type]
        pipe.execute()
    watcher = await room.agent("watcher")
    before, said = peak_bytes(room.a), await counted(room.a.url, RECEIPTS)

    with deaf(12, lambda: a_session(room, "deaf", mode="shared")):
        await at_rest(watcher, lambda: counted(room.a.url, RECEIPTS), least=said + 12)

        assert peak_bytes(room.a) - before < BUDGET + ROOM


@pytest.mark.parametrize(
    ("op", "fields"),
    [
        ("subscribe", {"topics": [f"{n:0>128}" for n in range(90)]}),
        ("presence", {"agents": [f"{n:0>60}" for n in range(20)]}),
        ("ack", {"entries": [f"1-{n}" for n in range(300)]}),
    ],
)
async def test_a_client_that_does_not_read_its_answers_is_not_heard(
    alice: Room, op: str, fields: dict[str, list[str]]
) -> None:
    room = alice
    frame = text_frame(json.dumps({"op": op, **fields}).encode()) * 20
    before = peak_bytes(room.a)

    def flood(client: Bare) -> bool:
        return all(client.is_heard(frame) for _ in range(SAID // len(frame)))

    with deaf(4, lambda: a_session(room, "deaf", mode="shared")) as clients:
        heard_to_the_end = await asyncio.gather(*(asyncio.to_thread(flood, client) for client in clients))

        assert not any(heard_to_the_end)
        assert peak_bytes(room.a) - before < BUDGET + ROOM


async def test_a_lease_brings_no_more_than_may_wait(alice: Room) -> None:
    room = alice
    sender = await room.agent("sender")
    for n in range(8):
        for _ in range(3):
            await sender.sent(*(message(to=f"deaf-{n}", payload=LARGE) for _ in range(40)))
    body = b'{"max":100}'
    numbers = iter(range(8))
    before = peak_bytes(room.a)

    def puller() -> Bare:
        name = f"deaf-{next(numbers)}"
        client = Bare(room.a.url)
        head = f"POST /v1/agents/{name}/lease HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {room.token(name)}\r\n"
        client.say_bytes(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        return client

    with deaf(8, puller):
        await at_rest(sender, lambda: held(room), least=8)

        assert await held(room) < 8 * 100
        assert peak_bytes(room.a) - before < BUDGET + ROOM


async def an_answered_task(room: Room) -> str:
    """A task of alice's with a megabyte of parts, each of which is far more once it is read."""
    message = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "?"}]}
    params = {"message": message, "configuration": {"returnImmediately": True}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
    asked = await caller(room, "alice").post(f"/a2a/{room.tenant}/bob", call)
    bob = caller(room, "bob")
    held = await bob.lease_one(ack_timeout_s=600)
    for _ in range(15):
        assert (await bob.settle("reply", held, payload=[[]] * 16_000, more=True)).status == 200
    task_id = str(asked["result"]["task"]["id"])
    await soon(lambda: _parts(room, task_id), 15)
    return task_id


async def _parts(room: Room, task_id: str) -> int:
    return len((await caller(room, "alice").get(f"/v1/tasks/{task_id}")).body.get("parts", ()))


def asking(room: Room, method: str, path: str, body: bytes = b"", accept: str = "*/*") -> Bare:
    client = Bare(room.a.url)
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {room.token('alice')}\r\nAccept: {accept}\r\n"
    client.say_bytes(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return client


def a_look(room: Room, task_id: str) -> Bare:
    return asking(room, "GET", f"/v1/tasks/{task_id}")


def a_follower(room: Room, task_id: str) -> Bare:
    return asking(room, "GET", f"/v1/tasks/{task_id}", accept="text/event-stream")


def by_a2a(room: Room, task_id: str) -> Bare:
    call = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task_id}}
    return asking(room, "POST", f"/a2a/{room.tenant}/bob", json.dumps(call).encode())


@pytest.mark.parametrize("ask", [a_look, a_follower, by_a2a])
async def test_answers_about_a_task_that_are_not_read_are_few(alice: Room, ask: Callable[[Room, str], Bare]) -> None:
    room = alice
    task_id = await an_answered_task(room)
    before = peak_bytes(room.a)

    with deaf(90, lambda: ask(room, task_id)) as clients:
        await asyncio.to_thread(clients[-1].is_closed, 1)  # by then all have been dealt with
        watcher = await room.agent("watcher")
        await watcher.settled_down()

        assert peak_bytes(room.a) - before < BUDGET + 2 * ROOM
