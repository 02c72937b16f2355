"""HTTP calls of an agent, for what frames cannot do."""

import asyncio
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec

from relay.client.connection.connection import Connection
from relay.client.connection.credentials import Credentials
from relay.client.connection.link import Relay
from relay.client.errors import NotAllowed
from relay.client.outbox.sent import Sent

AWAY_PAUSE_S = 0.5


class Calls:
    """Calls the instance of the last session, or the others if that one is away."""

    def __init__(self, relay: Relay, credentials: Credentials, connection: Connection) -> None:
        self._relay = relay
        self._credentials = credentials
        self._connection = connection

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
        """Status and body. Waits while no instance answers, or the rate is over; put a time limit around it."""
        while True:
            for url in [self._connection.url, *self._relay.urls]:
                token = self._credentials.for_calls()  # it may have been renewed since
                try:
                    status, found = await self._relay.call(method, url, path, token, body)
                except (OSError, aiohttp.ClientError, TimeoutError):
                    continue
                if status != 503 and not (status >= 400 and problem(found).code == "rate_limited"):
                    return status, found
            await asyncio.sleep(AWAY_PAUSE_S)

    async def cancel(self, sent: Sent) -> bool:
        """Takes a message back. False if it is held, or is not there any more."""
        status, _ = await self.call("DELETE", _message_path(sent))
        return status == 200

    async def where(self, sent: Sent) -> dict[str, Any] | None:
        """Where a message is; None if the relay does not know."""
        status, found = await self.call("GET", _message_path(sent))
        return found if status == 200 else None

    async def agent(self, name: str) -> dict[str, Any] | None:
        """The registration of an agent."""
        status, found = await self.call("GET", f"/v1/agents/{_bare(name)}")
        if status not in (200, 404):
            raise not_allowed(found)
        return found if status == 200 else None

    async def register(self, name: str, **fields: Any) -> None:
        status, found = await self.call("PUT", f"/v1/agents/{_bare(name)}", fields)
        if status != 200:
            raise not_allowed(found)


def _bare(name: str) -> str:
    return quote(name.rpartition("/")[2], safe="")


def _message_path(sent: Sent) -> str:
    return f"/v1/agents/{_bare(sent.to)}/messages/{quote(sent.id, safe='')}"


class Problem(msgspec.Struct):
    """Why the relay refused a call."""

    code: str = ""
    message: str = ""
    retry_after_ms: int = 0


def problem(answer: dict[str, Any]) -> Problem:
    """The error in an answer; an empty one if there is none that can be read."""
    try:
        return msgspec.convert(answer.get("error", {}), Problem)
    except msgspec.ValidationError:
        return Problem()


def not_allowed(answer: dict[str, Any]) -> NotAllowed:
    error = problem(answer)
    return NotAllowed(error.code or "unknown", error.message)
