"""An agent for tests: one WebSocket, frame by frame, with nothing between the test and the wire."""

import asyncio
import base64
import json
import secrets
import time
from collections.abc import Callable
from typing import Any

import aiohttp
import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

WAIT_S = 10.0
POLL_S = 0.01

Frame = dict[str, Any]


def message(id: str | None = None, to: str = "bob", payload: Any = "hello", **fields: Any) -> Frame:
    """M of a send; what is not named is left out."""
    return {"id": id or f"m-{secrets.token_hex(6)}", "to": to, "payload": payload, **fields}


def messages(count: int, to: str = "bob", **fields: Any) -> list[Frame]:
    """m-1, m-2, … whose payloads are their numbers."""
    return [message(f"m-{n}", to, n, **fields) for n in range(1, count + 1)]


def make_token(secret: str, address: str, scope: str = "send receive", ttl_s: float = 3_600, **claims: Any) -> str:
    """A token as an operator's own program would make it; a claim that is None is left out."""
    tenant, _, agent = address.partition("/")
    every = {"sub": agent, "tenant": tenant, "scope": scope, "exp": int(time.time() + ttl_s), **claims}
    return jwt.encode({name: value for name, value in every.items() if value is not None}, secret, algorithm="HS256")


class Key:
    """An agent's Ed25519 key."""

    def __init__(self) -> None:
        self._private = Ed25519PrivateKey.generate()
        self.public = base64.b64encode(self._private.public_key().public_bytes_raw()).decode()

    def sign(self, hello: Frame, address: str) -> str:
        signed = "\0".join(("relay-auth-v1", hello["instance"], hello["nonce"], address))
        return base64.b64encode(self._private.sign(signed.encode())).decode()

    def auth(self, hello: Frame, address: str) -> Frame:
        return {"agent": address, "key": self.public, "signature": self.sign(hello, address)}


async def until(condition: Callable[[], Any], what: str = "", within_s: float = WAIT_S) -> Any:
    """The first truth that a condition gives."""
    deadline = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"did not come true: {what or condition}"
        await asyncio.sleep(POLL_S)
    return found


class Agent:
    """Reads everything as it comes; a test takes frames out of `inbox` by their op, in order."""

    def __init__(self, http: aiohttp.ClientSession, ws: aiohttp.ClientWebSocketResponse, address: str) -> None:
        self.address = address
        self.hello: Frame = {}
        self.welcome: Frame = {}
        self.queue_status: Frame = {}
        self.heard: list[Frame] = []  # every frame, in order
        self.raw: list[str] = []  # and its text
        self.inbox: list[Frame] = []  # what no one has asked for yet
        self.deliveries_waiting: list[Frame] = []
        self._http = http
        self._ws = ws
        self._news = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def connect(
        cls, url: str, address: str = "", headers: dict[str, str] | None = None, autoping: bool = True
    ) -> "Agent":
        """A socket that has said nothing yet; `hello` is not waited for."""
        http = aiohttp.ClientSession()
        try:
            ws = await http.ws_connect(f"{url}/v1/ws", headers=headers, max_msg_size=0, autoping=autoping)
        except BaseException:
            await http.close()
            raise
        return cls(http, ws, address)

    async def _read(self) -> None:
        async for one in self._ws:
            if one.type is aiohttp.WSMsgType.TEXT:
                frame = json.loads(one.data)
                self.raw.append(one.data)
                self.heard.append(frame)
                self.inbox.append(frame)
                self._news.set()
        self._news.set()

    # -- opening and closing

    async def authenticate(self, **auth: Any) -> "Agent":
        """From `hello` to `queue_status`."""
        self.hello = await self.expect("hello")
        await self.say("auth", **auth)
        self.welcome = await self.expect("welcome")
        self.queue_status = await self.expect("queue_status")
        return self

    async def close(self) -> None:
        await self._ws.close()
        await self._reader
        await self._http.close()

    def vanish(self) -> None:
        """The connection is cut without a word, as when a machine loses its power."""
        assert self._ws._response.connection is not None
        transport = self._ws._response.connection.transport
        assert transport is not None
        transport.abort()

    @property
    def is_open(self) -> bool:
        return not self._reader.done()

    @property
    def close_code(self) -> int | None:
        return self._ws.close_code

    async def closed(self, within_s: float = WAIT_S) -> int:
        """The code with which the relay closes."""
        await asyncio.wait_for(asyncio.shield(self._reader), within_s)
        return self._ws.close_code or 0

    # -- saying

    async def say(self, op: str, **fields: Any) -> None:
        await self._ws.send_str(json.dumps({"op": op, **fields}))

    async def say_text(self, text: str) -> None:
        await self._ws.send_str(text)

    async def say_bytes(self, data: bytes, kind: aiohttp.WSMsgType = aiohttp.WSMsgType.TEXT) -> None:
        """A frame as it is, also one that is not UTF-8."""
        await self._ws.send_frame(data, kind)

    async def send(self, *batch: Frame) -> None:
        await self.say("send", messages=list(batch))

    async def sent(self, *batch: Frame) -> list[str]:
        """Sends, and waits until all of it is accepted, in whatever frames. Returns the ids of duplicates."""
        await self.send(*batch)
        return await self.accepted(*(one["id"] for one in batch))

    async def accepted(self, *ids: str) -> list[str]:
        missing, duplicates = list(ids), []
        while missing:
            answer = await self.expect("accepted", or_fail="refused")
            for id in (*answer["ids"], *answer["duplicate_ids"]):
                missing.remove(id)
            duplicates += answer["duplicate_ids"]
        return duplicates

    async def refusal(self) -> Frame:
        """The only refusal in the next frame of refusals."""
        (found,) = (await self.expect("refused"))["refusals"]
        return dict(found)

    async def ack(self, *deliveries: Frame) -> None:
        """Confirms, and waits for the answer."""
        await self.settle("ack", *deliveries)

    async def settle(self, how: str, *deliveries: Frame, **fields: Any) -> None:
        entries = [one["entry"] for one in deliveries]
        await self.say(how, entries=entries, confirm=True, **fields)
        assert (await self.expect("settled", or_fail="refused"))["entries"] == entries

    # -- hearing

    async def expect(self, op: str, within_s: float = WAIT_S, or_fail: str | None = None) -> Frame:
        """The next frame of this kind; others stay in the inbox."""
        deadline = time.monotonic() + within_s
        while True:
            for n, frame in enumerate(self.inbox):
                assert frame["op"] != or_fail, frame
                if frame["op"] == op:
                    return self.inbox.pop(n)
            left_s = deadline - time.monotonic()
            assert left_s > 0, f"no {op} came; there is {self.inbox}"
            assert self.is_open, f"closed with {self.close_code} before {op} came; there is {self.inbox}"
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), left_s)
            except TimeoutError:
                continue

    async def drained(self) -> int:
        return int((await self.expect("drained"))["delivered"])

    async def deliveries(self, count: int, within_s: float = WAIT_S) -> list[Frame]:
        """The next so many deliveries, in whatever frames they come."""
        while len(self.deliveries_waiting) < count:
            self.deliveries_waiting += (await self.expect("deliver", within_s))["messages"]
        found, self.deliveries_waiting = self.deliveries_waiting[:count], self.deliveries_waiting[count:]
        return found

    async def delivery(self, within_s: float = WAIT_S) -> Frame:
        (found,) = await self.deliveries(1, within_s)
        return found

    async def receipts(self, count: int, within_s: float = WAIT_S) -> list[Frame]:
        found: list[Frame] = []
        while len(found) < count:
            found += (await self.expect("receipts", within_s=within_s))["receipts"]
        return found

    async def error(self) -> Frame:
        return await self.expect("error")

    async def settled_down(self) -> None:
        """Whatever the relay had to say to this session by now has been said: questions pass through the store too."""
        for _ in range(2):
            await self.say("presence", agents=[self.address])
            await self.expect("presence")

    def got(self, op: str) -> list[Frame]:
        """Every frame of this kind so far."""
        return [frame for frame in self.heard if frame["op"] == op]

    def got_deliveries(self) -> list[Frame]:
        return [one for frame in self.got("deliver") for one in frame["messages"]]
