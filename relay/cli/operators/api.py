"""The relay's HTTP API for operators' commands."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import aiohttp
import orjson

from relay.cli.answers import read_answer
from relay.cli.place import CONNECT_WITHIN_S, Failed, Place
from relay.protocol.address import address

SCOPES = "send receive inspect admin metrics operator"
PAGE = 200


class NotThere(Failed):
    """The relay answered 404."""

    code = "not_there"
    status = 404


class Api:
    """Calls for one operator. Raises Failed with the relay's message."""

    def __init__(self, http: aiohttp.ClientSession, urls: list[str], tenant: str) -> None:
        self._http = http
        self._urls = urls
        self.tenant = tenant  # the caller's own

    async def get(self, path: str, **query: Any) -> Any:
        return await self.call("GET", path, None, **query)

    async def call(self, method: str, path: str, body: Any, **query: Any) -> Any:
        """The first relay that answers answers."""
        params = {name: str(value) for name, value in query.items() if value is not None}
        data = orjson.dumps(body) if body is not None else None
        reason = ""
        for url in self._urls:
            try:
                async with self._http.request(method, url.rstrip("/") + path, params=params, data=data) as answer:
                    return _answer(answer.status, await answer.read())
            except (aiohttp.ClientConnectionError, TimeoutError) as error:
                reason = str(error) or "it does not answer"
        raise Failed(f"{', '.join(self._urls)}: {reason}")

    async def pages(self, path: str, name: str, limit: int | None = None, **query: Any) -> list[Any]:
        """The rows of a list, page after page, as many as are wanted."""
        rows: list[Any] = []
        cursor = None
        while limit is None or len(rows) < limit:
            size = PAGE if limit is None else min(PAGE, limit - len(rows))
            page = await self.get(path, limit=size, cursor=cursor, **query)
            rows += page[name]
            cursor = page.get("cursor")
            if cursor is None:
                break
        return rows

    def path(self, agent: str) -> str:
        """Where an agent is: by its bare name in one's own tenant, else with its tenant."""
        tenant, _, name = address(agent, self.tenant).partition("/")
        return f"/v1/agents/{name if tenant == self.tenant else f'{tenant}~{name}'}"

    def message_path(self, to: str, message_id: str) -> str:
        return f"{self.path(to)}/messages/{quote(message_id, safe='')}"


def _answer(status: int, text: bytes) -> Any:
    try:
        body = read_answer(text)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise Failed(f"this is not a relay: it answered {status}")
    if status < 400:
        return body
    match body:
        case {"error": {"message": str(message)}}:
            pass
        case _:
            message = f"the relay answered {status}"
    raise NotThere(message) if status == 404 else Failed(message)


@asynccontextmanager
async def api(url: str | None, agent: str | None, token: str | None) -> AsyncIterator[Api]:
    place = Place(url, agent, token, "admin", SCOPES)
    headers = {"Authorization": f"Bearer {place.token()}", "Content-Type": "application/json"}
    timeout = aiohttp.ClientTimeout(total=CONNECT_WITHIN_S)
    async with aiohttp.ClientSession(headers=headers, timeout=timeout) as http:
        yield Api(http, place.urls, place.who.partition("/")[0])
