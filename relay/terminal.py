"""A person's client: send one message, or listen and print what comes, a JSON line each."""

import asyncio
import random
import secrets
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson

from relay.errors import RelayError, StoreUnavailable, Unauthorized

ANSWER_WITHIN_S = 15.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 15.0
MAX_MESSAGE_BYTES = 2**28  # a window full of large payloads may come in one frame
DO_NOT_COME_BACK = 4500  # close codes from here on

Frame = dict[str, Any]


class Refused(RelayError):
    """What the relay answered to a message."""

    code = "refused"
    status = 400


class Ended(RelayError):
    """The relay has closed the session and does not want it back."""

    code = "ended"
    status = 400


class Conversation:
    """An authenticated WebSocket, frame by frame."""

    def __init__(self, ws: aiohttp.ClientWebSocketResponse) -> None:
        self._ws = ws
        self.retry_after_s: float | None = None

    async def say(self, op: str, **fields: Any) -> None:
        await self._ws.send_str(orjson.dumps({"op": op, **fields}).decode())

    async def frames(self) -> AsyncIterator[Frame]:
        """What the relay says, until it closes. Raises Ended when it does not want us back."""
        async for message in self._ws:
            if message.type is aiohttp.WSMsgType.TEXT:
                frame = orjson.loads(message.data)
                if frame["op"] == "closing" and "retry_after_ms" in frame:
                    self.retry_after_s = frame["retry_after_ms"] / 1_000
                yield frame
        if (self._ws.close_code or 0) >= DO_NOT_COME_BACK:
            raise Ended(f"the relay closed the session: code {self._ws.close_code}")

    async def wait_for(self, op: str) -> Frame:
        async for frame in self.frames():
            if frame["op"] == op:
                return frame
            if frame["op"] == "error":
                raise Unauthorized(frame["message"]) if frame["code"] == "unauthorized" else Refused(frame["message"])
        raise StoreUnavailable("the relay closed the connection")


@asynccontextmanager
async def conversation(url: str, token: str, **auth: Any) -> AsyncIterator[Conversation]:
    """Connects and authenticates. Raises a RelayError that says what is wrong."""
    async with aiohttp.ClientSession() as http:
        try:
            ws = await http.ws_connect(f"{url.rstrip('/')}/v1/ws", max_msg_size=MAX_MESSAGE_BYTES)
        except aiohttp.ClientError as error:
            raise StoreUnavailable(f"no relay answers at {url}: {error}") from None
        async with ws:
            talk = Conversation(ws)
            await talk.say("auth", token=token, **auth)
            await talk.wait_for("welcome")
            yield talk


async def send(url: str, token: str, message: Frame) -> Frame:
    """Sends one message and returns the answer, `accepted`. Raises Refused with what the relay said."""
    async with asyncio.timeout(ANSWER_WITHIN_S), conversation(url, token) as talk:
        await talk.say("send", messages=[message])
        return await _answer(talk)


async def ask(url: str, token: str, message: Frame, wait_s: float) -> Frame | None:
    """Sends a request and waits for its reply; None when none has come in time."""
    async with conversation(url, token, mode="shared") as talk:
        await talk.say("send", messages=[{**message, "request": True}])
        try:
            async with asyncio.timeout(wait_s):
                await _answer(talk)
                async for delivery in _deliveries(talk):
                    await talk.say("ack", entries=[delivery["entry"]])
                    if delivery.get("reply_to") == message["id"]:
                        return delivery
        except TimeoutError:
            return None
    return None


async def _answer(talk: Conversation) -> Frame:
    async for frame in talk.frames():
        if frame["op"] == "accepted":
            return frame
        if frame["op"] == "refused":
            refusal = frame["refusals"][0]
            raise Refused(f"{refusal['code']}: {refusal['message']}")
    raise StoreUnavailable("the relay closed the connection before it answered; sending the same id again is safe")


async def _deliveries(talk: Conversation) -> AsyncIterator[Frame]:
    async for frame in talk.frames():
        if frame["op"] == "deliver":
            for delivery in frame["messages"]:
                yield delivery


async def listen(url: str, token: Callable[[], str], show: Callable[[Frame], None], acks: bool) -> None:
    """Shows messages for ever, and confirms each once it is shown. Reconnects when the relay wants us back."""
    pause_s = FIRST_PAUSE_S
    while True:
        retry_after_s = None
        try:
            async with conversation(url, token()) as talk:
                print(f"listening at {url}; Ctrl-C ends", file=sys.stderr)  # noqa: T201
                pause_s = FIRST_PAUSE_S
                async for delivery in _deliveries(talk):
                    show(delivery)
                    if acks:
                        await talk.say("ack", entries=[delivery["entry"]])
                retry_after_s = talk.retry_after_s
        except StoreUnavailable as error:
            print(f"{error.message}; trying again", file=sys.stderr)  # noqa: T201
        except (aiohttp.ClientError, ConnectionError):
            print("the connection was lost; trying again", file=sys.stderr)  # noqa: T201
        await asyncio.sleep(retry_after_s if retry_after_s is not None else random.uniform(0, pause_s))
        pause_s = min(LONGEST_PAUSE_S, pause_s * 2)


def new_id() -> str:
    return secrets.token_hex(8)


def payload_from(text: str) -> Any:
    """JSON if it is JSON, else the text itself."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
