"""The link to an instance: a WebSocket for frames, HTTP for what frames cannot do."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol, cast

import aiohttp
import msgspec

from relay.client.clock import Clock, RealClock

MAX_MESSAGE_BYTES = 2**28  # a window full of large payloads may come in one frame
OPEN_WITHIN_S = 10.0
CLOSE_WITHIN_S = 1.0
CALL_WITHIN_S = 75.0  # the longest wait of a call is 60 s


class Output(Protocol):
    """Output to the relay. What is written without a session is lost."""

    def is_live(self) -> bool: ...
    def say(self, text: bytes) -> None: ...


class Link(Protocol):
    """One connection. Writing never waits, and joins what is written in one turn."""

    def write(self, text: bytes) -> None: ...
    async def receive(self) -> bytes | str | None: ...
    async def close(self) -> None: ...
    @property
    def close_code(self) -> int | None: ...


class Relay(Protocol):
    """Where agents connect to: instances behind urls, or one that tests have in their own process."""

    urls: Sequence[str]

    @property
    def clock(self) -> Clock: ...

    async def connect(self, url: str) -> Link: ...
    async def call(
        self, method: str, url: str, path: str, token: str, body: Any = None
    ) -> tuple[int, dict[str, Any]]: ...
    async def close(self) -> None: ...


class Socket(aiohttp.ClientWebSocketResponse[Any]):
    """A WebSocket that knows its transport, which aiohttp does not hand out."""

    def __init__(
        self, reader: Any, writer: Any, protocol: Any, response: aiohttp.ClientResponse, *rest: Any, **options: Any
    ):
        super().__init__(reader, writer, protocol, response, *rest, **options)
        self.transport = response.connection.transport if response.connection is not None else None


class WebSocketLink:
    """A link over the network."""

    def __init__(self, ws: Socket) -> None:
        self._ws = ws
        self._out: list[bytes] = []
        self._news = asyncio.Event()
        self._writer = asyncio.create_task(self._write())
        self._goodbye: asyncio.Task[None] | None = None

    def write(self, text: bytes) -> None:
        self._out.append(text)
        self._news.set()

    async def _write(self) -> None:
        with suppress(ConnectionError, aiohttp.ClientError):  # the reader sees that, too
            while await self._news.wait():
                self._news.clear()
                out, self._out = self._out, []
                for text in out:
                    await self._ws.send_frame(text, aiohttp.WSMsgType.TEXT)

    async def receive(self) -> bytes | str | None:
        """The next frame; None at the end."""
        try:
            while True:
                message = await self._ws.receive()
                if message.type is aiohttp.WSMsgType.TEXT:
                    text: str | bytes = message.data
                    return text
                if message.type is not aiohttp.WSMsgType.BINARY:
                    return None
        except (ConnectionError, aiohttp.ClientError):
            return None

    @property
    def close_code(self) -> int | None:
        return self._ws.close_code

    async def close(self) -> None:
        """Says the rest and goodbye, once, and waits for the answer: what is cut off may never be read."""
        if self._goodbye is None:
            self._goodbye = asyncio.create_task(self._close())
        await asyncio.shield(self._goodbye)

    async def _close(self) -> None:
        """Gives up if there is no answer in time: a dead link would take the full timeout."""
        self._writer.cancel()
        try:
            async with asyncio.timeout(CLOSE_WITHIN_S):
                await self._say_the_rest()
                await self._ws.close()
        except TimeoutError:
            if self._ws.transport is not None:
                self._ws.transport.abort()

    async def _say_the_rest(self) -> None:
        out, self._out = self._out, []
        with suppress(ConnectionError, aiohttp.ClientError):
            for text in out:
                await self._ws.send_frame(text, aiohttp.WSMsgType.TEXT)


class Network:
    """Instances behind urls: ws, wss, http or https."""

    def __init__(self, urls: str | Sequence[str]) -> None:
        self.urls = [as_http(url) for url in ([urls] if isinstance(urls, str) else urls)]
        if not self.urls:
            raise ValueError("at least one url of a relay is needed")
        self.clock = RealClock()
        self._http: aiohttp.ClientSession | None = None

    def _session(self) -> aiohttp.ClientSession:
        if self._http is None:
            self._http = aiohttp.ClientSession(ws_response_class=Socket)
        return self._http

    async def connect(self, url: str) -> Link:
        """Raises OSError, aiohttp.ClientError or TimeoutError."""
        async with asyncio.timeout(OPEN_WITHIN_S):
            ws = await self._session().ws_connect(
                f"{url}/v1/ws", max_msg_size=MAX_MESSAGE_BYTES, decode_text=False, compress=0
            )
        return WebSocketLink(cast(Socket, ws))

    async def call(self, method: str, url: str, path: str, token: str, body: Any = None) -> tuple[int, dict[str, Any]]:
        """Status and body of a call. Raises OSError, aiohttp.ClientError or TimeoutError."""
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        data = None if body is None else msgspec.json.encode(body)
        timeout = aiohttp.ClientTimeout(total=CALL_WITHIN_S)
        async with self._session().request(method, url + path, data=data, headers=headers, timeout=timeout) as answer:
            text = await answer.read()
            is_json = answer.content_type == "application/json"
            try:
                return answer.status, msgspec.json.decode(text, type=dict[str, Any]) if is_json and text else {}
            except (msgspec.DecodeError, ValueError, RecursionError):
                raise aiohttp.ClientPayloadError("the answer is not a JSON object") from None

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()
            self._http = None


def as_http(url: str) -> str:
    """A url as the HTTP client wants it. Raises ValueError for what is none."""
    scheme, found, rest = url.partition("://")
    schemes = {"ws": "http", "wss": "https", "http": "http", "https": "https"}
    if not found or scheme not in schemes or not rest:
        raise ValueError(f"{url!r} is not the url of a relay, such as ws://127.0.0.1:8080")
    return f"{schemes[scheme]}://{rest.rstrip('/').removesuffix('/v1/ws')}"
