"""A caller for tests: plain HTTP calls with a token, each on a connection of its own."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import aiohttp
from yarl import URL

from tests.agents import WAIT_S, Frame
from tests.system.conftest import Instance, Room


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    text: str

    @property
    def body(self) -> Any:
        return json.loads(self.text)

    @property
    def code(self) -> str:
        return str(self.body["error"]["code"])

    @property
    def said(self) -> tuple[int, str]:
        """Status and code of an error."""
        return self.status, self.code

    def __getitem__(self, name: str) -> Any:
        return self.body[name]


@dataclass(frozen=True, slots=True)
class Event:
    """One Server-Sent Event."""

    kind: str
    id: str
    data: Any


class Caller:
    """Calls one instance in one agent's name."""

    def __init__(self, url: str, token: str | None = None, name: str = "") -> None:
        self.url = url
        self.name = name
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    async def call(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, **query: Any
    ) -> Answer:
        """A body that is bytes goes out as it is; anything else as JSON."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        async with (
            aiohttp.ClientSession() as http,
            http.request(
                method,
                self._url(path, query),
                data=io.BytesIO(data) if data else data,
                headers=self._headers | (headers or {}),
                allow_redirects=False,
            ) as answer,
        ):
            return Answer(answer.status, dict(answer.headers), await answer.text())

    def _url(self, path: str, query: dict[str, Any]) -> URL:
        text = "&".join(f"{name.rstrip('_')}={quote(str(value), safe='')}" for name, value in query.items())
        return URL(f"{self.url}{path}" + (f"?{text}" if text else ""), encoded=True)

    async def get(self, path: str, **query: Any) -> Answer:
        return await self.call("GET", path, **query)

    async def post(self, path: str, body: Any = None, **query: Any) -> Answer:
        return await self.call("POST", path, {} if body is None else body, **query)

    async def put(self, path: str, body: Any = None, **query: Any) -> Answer:
        return await self.call("PUT", path, {} if body is None else body, **query)

    async def delete(self, path: str, **query: Any) -> Answer:
        return await self.call("DELETE", path, **query)

    # -- words of the relay

    async def send(self, to: str, id: str | None = None, payload: Any = "hello", **fields: Any) -> Answer:
        """One message, which must be accepted."""
        answer = await self.post(
            f"/v1/agents/{to}/messages", {"payload": payload, **({"id": id} if id else {}), **fields}
        )
        assert answer.status == 202, answer
        return answer

    async def ask(self, to: str, id: str, wait_s: float = 0, payload: Any = "?", **fields: Any) -> Answer:
        body = {"id": id, "payload": payload, **fields}
        return await self.post(f"/v1/agents/{to}/messages", body, wait_s=wait_s)

    async def lease(self, **body: Any) -> list[Frame]:
        """What this agent is given from its own mailbox."""
        answer = await self.post(f"/v1/agents/{self.name}/lease", body)
        assert answer.status == 200, answer
        found: list[Frame] = answer["messages"]
        return found

    async def lease_one(self, **body: Any) -> Frame:
        (found,) = await self.lease(**body)
        return found

    async def settle(self, how: str, delivery: Frame, **body: Any) -> Answer:
        path = f"/v1/agents/{self.name}/entries/{delivery['entry']}/{how}"
        return await self.post(path, {"lock_token": delivery["lock_token"], **body})

    async def where(self, to: str, id: str) -> str:
        answer = await self.get(f"/v1/agents/{to}/messages/{quote(id, safe='')}")
        return str(answer["state"]) if answer.status == 200 else str(answer.status)

    @asynccontextmanager
    async def follow(self, path: str, last: str | None = None, **query: Any) -> AsyncIterator[AsyncIterator[Event]]:
        """Server-Sent Events as they come."""
        headers = self._headers | {"Accept": "text/event-stream"} | ({"Last-Event-ID": last} if last else {})
        async with (
            aiohttp.ClientSession() as http,
            http.get(
                self._url(path, query), headers=headers, timeout=aiohttp.ClientTimeout(sock_read=WAIT_S)
            ) as answer,
        ):
            assert answer.status == 200, await answer.text()
            assert answer.content_type == "text/event-stream"
            yield _events(answer.content)


async def _events(lines: aiohttp.StreamReader) -> AsyncIterator[Event]:
    fields: dict[str, str] = {}
    async for raw in lines:
        line = raw.decode().rstrip("\n")
        if line.startswith(":"):
            continue
        if line:
            name, _, value = line.partition(": ")
            fields[name] = f"{fields[name]}\n{value}" if name in fields else value
        elif fields:
            yield Event(fields.get("event", "message"), fields.get("id", ""), json.loads(fields["data"]))
            fields = {}


def caller(room: Room, name: str, scope: str = "send receive", at: Instance | None = None, **claims: Any) -> Caller:
    """An agent of the room's tenant, through the first instance unless another is named."""
    return Caller((at or room.a).url, room.token(name, scope, **claims), name)


def admin(room: Room, name: str = "root", at: Instance | None = None) -> Caller:
    return caller(room, name, "send receive inspect admin metrics", at)


def operator(room: Room, name: str = "other/root", at: Instance | None = None) -> Caller:
    """An admin of every tenant, at home in another one."""
    return caller(room, name, "send receive inspect operator metrics", at)


def watchers(room: Room, name: str) -> list[str]:
    """Who serves an agent's mailbox: sessions, and calls that wait."""
    address = room.address(name)
    value = room.redis.hget(room.keys.presence(room.keys.shard(address)), address)
    return value.split("\n") if value else []


async def soon(question: Any, expected: Any) -> None:
    """Asks until the answer is this one."""
    deadline = asyncio.get_running_loop().time() + WAIT_S
    while (found := await question()) != expected:
        assert asyncio.get_running_loop().time() < deadline, f"{found!r} is not {expected!r}"
        await asyncio.sleep(0.02)
