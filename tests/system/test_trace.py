"""After mixed traffic with faults, `relay trace` tells exactly one state of every message, and it is the true one."""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

from tests.callers import Answer, Caller
from tests.system.conftest import SECRET, Instance, Room

SETTINGS = {"sweep_every_s": 1, "recheck_s": 5}
PER_KIND = 25
LONG_S = 3_600


class Books:
    """What the test itself knows of each message."""

    def __init__(self) -> None:
        self.states: dict[str, str] = {}


class Traffic:
    """Sends and settles over HTTP, on whichever instance answers; everything it does may be repeated."""

    def __init__(self, room: Room, instances: list[Instance]) -> None:
        self._room = room
        self.instances = instances
        self.books = Books()

    async def call(self, who: str, method: str, path: str, body: Any = None) -> Answer:
        """Until some instance has answered with something else than 503."""
        token = self._room.token(who, "send receive admin inspect")
        for attempt in range(200):
            at = self.instances[attempt % len(self.instances)]
            try:
                answer = await Caller(at.url, token).call(method, path, body)
            except (aiohttp.ClientError, TimeoutError):
                await asyncio.sleep(0.05)
                continue
            if answer.status < 500:
                return answer
            await asyncio.sleep(0.05)
        raise AssertionError(f"nobody answered {method} {path}")

    async def send(self, to: str, kind: str, n: int, **fields: Any) -> str:
        message_id = f"{kind}-{n}"
        body = {"id": message_id, "payload": n, **fields}
        answer = await self.call("alice", "POST", f"/v1/agents/{to}/messages", body)
        assert answer.status == 202, answer.text
        self.books.states[message_id] = "queued"
        return message_id

    async def settle_all(self, who: str, kind: str, how: str, state: str, **fields: Any) -> None:
        """Until every message of a kind is in this state. What a lost answer leased comes back in time."""
        left = {f"{kind}-{n}" for n in range(PER_KIND)}
        while left:
            body = {"max": 10, "wait_s": 0.2, "ack_timeout_s": 5}
            for message in (await self.call(who, "POST", f"/v1/agents/{who}/lease", body))["messages"]:
                path = f"/v1/agents/{who}/entries/{message['entry']}/{how}"
                await self.call(who, "POST", path, {"lock_token": message["lock_token"], **fields})
            for message_id in sorted(left):
                if await self.state_of(who, message_id) == state:
                    left.discard(message_id)
                    self.books.states[message_id] = state

    async def state_of(self, who: str, message_id: str) -> str:
        answer = await self.call("alice", "GET", f"/v1/agents/{who}/messages/{message_id}")
        return str(answer["state"])


async def acked(traffic: Traffic) -> None:
    await asyncio.gather(*(traffic.send("acker", "acked", n, priority=n % 10) for n in range(PER_KIND)))
    await traffic.settle_all("acker", "acked", "ack", "acked")


async def dead(traffic: Traffic) -> None:
    await asyncio.gather(*(traffic.send("dier", "dead", n) for n in range(PER_KIND)))
    await traffic.settle_all("dier", "dead", "nack", "dead", retry=False, reason="cannot be read")


async def revived(traffic: Traffic) -> None:
    await asyncio.gather(*(traffic.send("riser", "revived", n) for n in range(PER_KIND)))
    await traffic.settle_all("riser", "revived", "nack", "dead", retry=False)
    await traffic.call("riser", "POST", "/v1/agents/riser/dead/revive", {"all": True})
    for n in range(PER_KIND):
        traffic.books.states[f"revived-{n}"] = "queued"


async def held(traffic: Traffic) -> None:
    """Of what was revived some are acked and some are held. When the faults are over: a lease must not be lost."""
    body = {"max": PER_KIND, "ack_timeout_s": LONG_S}
    leased = (await traffic.call("riser", "POST", "/v1/agents/riser/lease", body))["messages"]
    for n, message in enumerate(leased):
        traffic.books.states[message["id"]] = "acked" if n % 2 else "held"
        if n % 2:
            path = f"/v1/agents/riser/entries/{message['entry']}/ack"
            answer = await traffic.call("riser", "POST", path, {"lock_token": message["lock_token"]})
            assert answer.status == 200


async def expired(traffic: Traffic) -> None:
    for n in range(PER_KIND):
        message_id = await traffic.send("sleeper", "expired", n, ttl_s=0.5)
        traffic.books.states[message_id] = "expired"


async def cancelled(traffic: Traffic) -> None:
    for n in range(PER_KIND):
        message_id = await traffic.send("sleeper", "cancelled", n)
        answer = await traffic.call("alice", "DELETE", f"/v1/agents/sleeper/messages/{message_id}")
        assert answer.status in (200, 404)
        traffic.books.states[message_id] = "cancelled"


async def waiting(traffic: Traffic) -> None:
    await asyncio.gather(*(traffic.send("sleeper", "waits", n, priority=n % 10) for n in range(PER_KIND)))
    for n in range(PER_KIND):
        message_id = await traffic.send("sleeper", "delayed", n, delay_s=LONG_S)
        traffic.books.states[message_id] = "delayed"


async def backing_off(traffic: Traffic) -> None:
    await asyncio.gather(*(traffic.send("failer", "backs-off", n) for n in range(PER_KIND)))
    await traffic.settle_all("failer", "backs-off", "nack", "delayed", delay_s=LONG_S)


async def faults(room: Room, traffic: Traffic) -> None:
    """Connections to the store are cut, the store hangs, and an instance is killed and replaced."""
    for _ in range(3):
        await asyncio.sleep(0.4)
        room.redis.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    room.relay.server.pause()
    await asyncio.sleep(1)
    room.relay.server.resume()
    room.b.kill()
    traffic.instances[1] = room.relay.instance()
    await asyncio.sleep(0.4)
    room.redis.execute_command("CLIENT", "KILL", "TYPE", "pubsub")


async def traced(room: Room, ids: list[str]) -> list[dict[str, Any]]:
    """What one call of the command prints for all of them."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("RELAY_")}
    environ |= {
        "RELAY_URL": room.a.url,
        "RELAY_TOKEN_SECRET": SECRET,
        "RELAY_REDIS_URL": str(room.relay.settings["redis_url"]),
    }
    words = ["-m", "relay.cli", "trace", *ids, "--as", room.address("admin")]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, env=environ, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return [json.loads(line) for line in out.splitlines()]


KINDS: list[Callable[[Traffic], Awaitable[None]]] = [
    *(acked, dead, revived, expired, cancelled, waiting, backing_off),
]


async def test_every_message_resolves_to_the_one_state_that_it_is_in(room: Room) -> None:
    traffic = Traffic(room, [room.a, room.b])
    for name in ("acker", "dier", "riser", "sleeper", "failer"):
        await traffic.call(name, "PUT", f"/v1/agents/{name}", {"mode": "shared"})

    await asyncio.gather(*(kind(traffic) for kind in KINDS), faults(room, traffic))
    await held(traffic)
    await _until_expired(traffic)

    books = traffic.books.states
    answers = await traced(room, list(books))
    told = {answer["id"]: answer["state"] for answer in answers}
    assert len(answers) == len(books)
    assert told == books
    assert all(answer["check"] for answer in answers)


async def _until_expired(traffic: Traffic) -> None:
    ids = [message_id for message_id, state in traffic.books.states.items() if state == "expired"]
    for message_id in ids:
        for _ in range(300):
            if await traffic.state_of("sleeper", message_id) == "expired":
                break
            await asyncio.sleep(0.1)
