"""What a hostile client does, each way as fast as it goes: without credentials, and with an ordinary token.

python -m bench.attacks --ports 8080,8081 --seconds 60 [--token TOKEN]
"""

import asyncio
import json
import os
import random
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import aiohttp
import click
import uvloop

GONE = (aiohttp.ClientError, OSError, TimeoutError, asyncio.IncompleteReadError)
PAUSE_S = 0.05  # after a refusal: a client that spins on a closed door attacks nobody but itself
HELD_S = 5.0
LARGE = "x" * 60_000
HALF_A_SURROGATE = (
    '{"op":"send","messages":[' + ",".join(['{"id":"\\ud800","to":"a","payload":"' + LARGE + '"}'] * 60) + "]}"
)
DEEP = '{"op":"auth","token":' + "[" * 500_000 + "]" * 500_000 + "}"
MANY_KEYS = '{"op":"auth",' + ",".join(f'"k{n}":{n}' for n in range(200_000)) + "}"
UPGRADE = (
    b"GET /v1/ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
FLOODS = {  # small frames, each with a mask of zeros
    "binary frames": (b"\x82\x80\0\0\0\0", b""),
    "malformed frames": (b"\x81\x81\0\0\0\0x", b""),
    "pings": (b"\x89\x84\0\0\0\0ping", b""),
    "empty fragments": (b"\x00\x80\0\0\0\0", b"\x01\x80\0\0\0\0"),
}
ENTRIES = [f"{n}-0" for n in range(1_000)]
NAMES = [f"n{n}" for n in range(1_000)]

Socket = aiohttp.ClientWebSocketResponse


class Enemy:
    """Where to, by what right, and what came of it."""

    def __init__(self, ports: list[int], token: str | None, until: float, http: aiohttp.ClientSession) -> None:
        self._ports = ports
        self.token = token
        self.http = http
        self.until = until
        self.count: Counter[str] = Counter()

    def running(self) -> bool:
        return time.monotonic() < self.until

    @property
    def port(self) -> int:
        return random.choice(self._ports)

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def socket(self, **auth: Any) -> Socket:
        """An open WebSocket, authenticated if there is a token."""
        ws = await self.http.ws_connect(self.url("/v1/ws"), max_msg_size=0, autoping=True)
        if self.token is not None:
            await ws.send_str(json.dumps({"op": "auth", "token": self.token, **auth}))
        return ws

    async def ask(self, method: str, path: str, **options: Any) -> int:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        async with self.http.request(method, self.url(path), headers=headers, **options) as answer:
            await answer.read()
            self.count[str(answer.status)] += 1
            return answer.status


Attack = Callable[[Enemy], Awaitable[None]]


# -- without credentials


def frames_before_auth(text: str) -> Attack:
    async def attack(enemy: Enemy) -> None:
        ws = await enemy.http.ws_connect(enemy.url("/v1/ws"), max_msg_size=0)
        async with ws:
            while not ws.closed:
                await ws.send_str(text)
                enemy.count["frames"] += 1
                await read(ws)

    return attack


async def hold(enemy: Enemy, count: int, open_one: Callable[[], Awaitable[Callable[[], Any]]]) -> None:
    """As many connections as can be had up to a number, for a while. Opening one gives the way to close it."""
    closes: list[Callable[[], Any]] = []
    with suppress(*GONE):
        while len(closes) < count:
            closes.append(await open_one())
    enemy.count["held"] += len(closes)
    await asyncio.sleep(min(HELD_S, max(0.0, enemy.until - time.monotonic())))
    for close in closes:
        closing = close()
        if closing is not None:
            await closing


async def silent_sockets(enemy: Enemy) -> None:
    """Connections that say nothing."""

    async def open_one() -> Callable[[], Any]:
        return (await enemy.http.ws_connect(enemy.url("/v1/ws"))).close

    await hold(enemy, 200, open_one)


async def requests(enemy: Enemy, count: int, head: str) -> None:
    """Requests on connections of their own, of which nothing is read."""

    async def open_one() -> Callable[[], Any]:
        _, writer = await asyncio.open_connection("127.0.0.1", enemy.port, limit=1_024)
        writer.write(head.encode())
        return writer.close

    await hold(enemy, count, open_one)


async def trickled_headers(enemy: Enemy) -> None:
    await requests(enemy, 200, "GET /healthz HTTP/1.1\r\nHost: x\r\n")


def flood(piece: bytes, begin: bytes = b"") -> Attack:
    """The same bytes over and over on a WebSocket of its own, as fast as they are taken; no answer is read."""

    async def attack(enemy: Enemy) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", enemy.port, limit=1_024)
        auth = json.dumps({"op": "auth", "token": enemy.token, "mode": "shared"}).encode() if enemy.token else b""
        hail = b"\x81\xfe%b\0\0\0\0%b" % (len(auth).to_bytes(2), auth) if auth else b""
        writer.write(UPGRADE + hail + begin)
        with suppress(*GONE):
            async with asyncio.timeout(HELD_S):
                while enemy.running():
                    writer.write(piece * (60_000 // len(piece)))
                    await writer.drain()
        enemy.count["floods"] += 1
        writer.transport.abort()

    return attack


async def bad_tokens(enemy: Enemy) -> None:
    path = random.choice(("/v1/stats", "/v1/agents", "/v1/events", "/v1/agents/bob/messages", "/v1/tasks/x"))
    headers = {"Authorization": f"Bearer {secrets.token_hex(200)}"}
    async with enemy.http.get(enemy.url(path), headers=headers) as answer:
        await answer.read()
        enemy.count[str(answer.status)] += 1


async def public_pages(enemy: Enemy) -> None:
    await enemy.ask("GET", random.choice(("/healthz", "/readyz", "/openapi.json", "/docs", "/", "/nowhere")))


async def large_bodies(enemy: Enemy) -> None:
    await enemy.ask("POST", "/v1/agents/bob/messages", data=b"x" * 8_000_000)


# -- with an ordinary token


async def read(ws: Socket) -> None:
    """Whatever has come by now."""
    with suppress(TimeoutError):
        while (await ws.receive(0.001)).type is aiohttp.WSMsgType.TEXT:
            pass
    await asyncio.sleep(0)


def frames(make: Callable[[], dict[str, Any]], reads: bool = True, **auth: Any) -> Attack:
    """One frame after the other on a socket, whose answers are read, or not."""

    async def attack(enemy: Enemy) -> None:
        ws = await enemy.socket(**auth)
        async with ws:
            while enemy.running() and not ws.closed:
                async with asyncio.timeout(20):
                    await ws.send_str(json.dumps(make()))
                enemy.count["frames"] += 1
                if reads:
                    await read(ws)

    return attack


def _send(to: Callable[[], str], payload: str, count: int, **fields: Any) -> Callable[[], dict[str, Any]]:
    def make() -> dict[str, Any]:
        many = [{"id": secrets.token_hex(8), "to": to(), "payload": payload, **fields} for _ in range(count)]
        return {"op": "send", "messages": many}

    return make


async def settle_loops(enemy: Enemy) -> None:
    """Touches, releases and nacks what it holds, over and over."""
    ws = await enemy.socket(mode="shared", window=100)
    async with ws:
        while enemy.running() and not ws.closed:
            received = await ws.receive(20)
            if received.type is not aiohttp.WSMsgType.TEXT:
                return
            frame = json.loads(received.data)
            if frame["op"] == "deliver":
                entries = [one["entry"] for one in frame["messages"]]
                for _ in range(20):
                    await ws.send_str(json.dumps({"op": "touch", "entries": entries}))
                await ws.send_str(json.dumps({"op": "release", "entries": entries}))
                enemy.count["frames"] += 21


async def reconnects(enemy: Enemy) -> None:
    ws = await enemy.socket(mode=random.choice(("shared", "exclusive")))
    enemy.count["sockets"] += 1
    await ws.close()


async def many_sessions(enemy: Enemy) -> None:
    async def open_one() -> Callable[[], Any]:
        return (await enemy.socket(mode="shared")).close

    await hold(enemy, 100, open_one)


def calls(*paths: str) -> Attack:
    async def attack(enemy: Enemy) -> None:
        await enemy.ask("GET", random.choice(paths))

    return attack


async def unread_answers(enemy: Enemy) -> None:
    """Asks for much, and reads nothing."""
    path = random.choice(("/v1/events", "/v1/agents/mallory/dead?limit=1000", "/v1/activity?limit=1000"))
    await requests(enemy, 30, f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {enemy.token}\r\n\r\n")


async def registrations(enemy: Enemy) -> None:
    await enemy.ask("PUT", "/v1/agents/mallory", json={"card": {"x": LARGE[:16_000]}, "next_active_at_ms": 2**52})


async def leases(enemy: Enemy) -> None:
    await enemy.ask("POST", "/v1/agents/mallory/lease", json={"max": 100, "ack_timeout_s": 1, "wait_s": 1})


STRANGER: dict[str, Attack] = {
    "half a surrogate, 3.6 MB": frames_before_auth(HALF_A_SURROGATE),
    "500,000 levels": frames_before_auth(DEEP),
    "200,000 keys": frames_before_auth(MANY_KEYS),
    "not JSON": frames_before_auth("{" * 60_000),
    "silent sockets": silent_sockets,
    "trickled headers": trickled_headers,
    "bad tokens": bad_tokens,
    "public pages": public_pages,
    "bodies of 8 MB": large_bodies,
    **{name: flood(*pieces) for name, pieces in FLOODS.items()},
}


def _own() -> str:
    return "mallory"


def _new() -> str:
    return f"n{secrets.token_hex(8)}"


ORDINARY: dict[str, Attack] = {
    "large sends to itself": frames(_send(_own, LARGE, 10), mode="shared"),
    "small sends to itself": frames(_send(_own, "x", 500), mode="shared"),
    "sends to new names": frames(_send(_new, LARGE, 10), mode="shared"),
    "requests to itself, threads": frames(lambda: _send(_own, "x", 100, request=True, thread=_new())(), mode="shared"),
    "nothing read, receipts": frames(_send(_own, "x", 500, receipt="all"), reads=False, mode="shared"),
    "nothing read, presence": frames(lambda: {"op": "presence", "agents": NAMES}, reads=False, mode="shared"),
    "settle loops": settle_loops,
    "settling what it does not hold": frames(lambda: {"op": "nack", "entries": ENTRIES}, mode="shared"),
    "sync": frames(lambda: {"op": "sync", "peer": "mallory", "thread": ""}, mode="shared"),
    "topics": frames(lambda: {"op": "subscribe", "topics": [_new() for _ in range(1_000)]}, mode="shared"),
    "publications": frames(lambda: {"op": "publish", "topic": "t", "payload": LARGE}, mode="shared"),
    "blocks": frames(lambda: {"op": "block", "agents": [_new() for _ in range(1_000)]}, mode="shared"),
    "half a surrogate, 3.6 MB": frames(lambda: {"op": "send", "messages": [{"id": "\ud800", "payload": LARGE}] * 60}),
    "reconnects": reconnects,
    "many sessions": many_sessions,
    "looks": calls(
        *("/v1/agents?limit=1000", "/v1/stats", "/v1/anomalies", "/v1/activity?message=x", "/v1/activity?limit=1000"),
        *("/v1/agents/mallory/dead?limit=1000", "/v1/agents/mallory/messages?limit=1000", "/v1/tasks/x?wait_s=1"),
    ),
    "unread answers": unread_answers,
    "registrations": registrations,
    "leases": leases,
    **{name: flood(*pieces) for name, pieces in FLOODS.items()},
}


async def _keep_at(enemy: Enemy, attack: Attack) -> None:
    while enemy.running():
        try:
            await attack(enemy)
        except (*GONE, TypeError, ValueError):
            enemy.count["shut out"] += 1
            await asyncio.sleep(PAUSE_S)


async def attack_all(ports: list[int], token: str | None, seconds: float) -> None:
    """Every way at once, until the time is over; says what came of it."""
    until = time.monotonic() + seconds
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=30)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as http:
        enemy = Enemy(ports, token, until, http)
        attacks = STRANGER if token is None else ORDINARY
        working = [asyncio.create_task(_keep_at(enemy, attack)) for attack in attacks.values()]
        await asyncio.wait(working, timeout=seconds)
        click.echo(json.dumps(enemy.count))
        os._exit(0)  # an enemy leaves without a word


@click.command()
@click.option("--ports", required=True, help="The instances' ports on this machine, separated by commas.")
@click.option("--seconds", default=60.0, show_default=True)
@click.option("--token", help="The right of acme/mallory; without it, none.")
def main(ports: str, seconds: float, token: str | None) -> None:
    """Attack instances on this machine."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(attack_all([int(port) for port in ports.split(",")], token, seconds))


if __name__ == "__main__":
    main()
