"""Pulling: workers that lease a hundred messages over HTTP and settle them in one call, on both instances."""

import asyncio
import time

import orjson
from msgspec import Raw

from bench.filling import store_all
from bench.load import PAYLOAD
from bench.stand import Stand
from relay.auth import Tokens
from relay.protocol.message import Message
from relay.store.store import open_store

PULLERS = 16
LEASE = 100
FILL_PER_S = 20_000  # messages put there for each second that is measured; more than can be pulled is not needed


class Pipe:
    """An HTTP/1.1 connection that is kept, speaking just enough for JSON in and JSON out."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> None:
        self._reader = reader
        self._writer = writer
        self._head = f"Host: relay\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n".encode()

    async def post(self, path: str, body: bytes) -> bytes:
        self._writer.write(
            b"POST %b HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n%b" % (path.encode(), self._head, len(body), body)
        )
        head = await self._reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise ConnectionError(head[:80].decode())
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return await self._reader.readexactly(length)

    def close(self) -> None:
        self._writer.close()


async def fill(there: Stand, mailboxes: int, each: int) -> None:
    """Messages for the pullers to find."""
    payload = Raw(f'"{PAYLOAD}"'.encode())
    messages = (
        Message(id=f"m-{n}", to=f"bench/pull-{number}", payload=payload, receipt=False)
        for n in range(each)
        for number in range(mailboxes)
    )
    async with open_store(there.settings, there.url) as store:
        await store_all(store, "bench/filler", messages)


async def pull(there: Stand, seconds: float) -> float:
    """Messages a second that pullers lease and settle."""
    each = min(int(FILL_PER_S * seconds / PULLERS), there.settings.mailbox_max_messages)
    await fill(there, PULLERS, each)
    tokens = Tokens(there.settings)

    async def puller(number: int) -> int:
        token = tokens.make(f"bench/pull-{number}", "receive", 3_600)
        port = there.ports[number % len(there.ports)]
        pipe = Pipe(*await asyncio.open_connection("127.0.0.1", port, limit=2**22), token)
        count = 0
        while True:
            leased = orjson.loads(await pipe.post(f"/v1/agents/pull-{number}/lease", b'{"max":%d}' % LEASE))["messages"]
            if not leased:
                pipe.close()
                return count
            acks = [{"entry": one["entry"], "lock_token": one["lock_token"]} for one in leased]
            settled = orjson.loads(await pipe.post(f"/v1/agents/pull-{number}/settle", orjson.dumps({"ack": acks})))
            count += len(settled["settled"])

    began = time.perf_counter()
    total = sum(await asyncio.gather(*map(puller, range(PULLERS))))
    assert total == PULLERS * each, (total, PULLERS * each)
    return total / (time.perf_counter() - began)
