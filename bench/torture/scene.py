"""The scene: what all clients of a run share."""

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import aiohttp
import jwt

from bench.torture.books import Books, Frame, Key
from bench.torture.story import chance
from bench.torture.traffic import Draft

SECRET = "a secret of the torture that is long enough"
TOKEN_LIFE_S = 4 * 3_600
CALL_WITHIN_S = 10.0
TRY_AGAIN_S = 0.4
TRIES = 5
CANCELLED = {200: "cancelled", 404: "not_found", 409: "busy"}


@dataclass(frozen=True, slots=True)
class Door:
    """Where clients reach an instance."""

    url: str


class Scene:
    """Clients note in the books through this, and reach the relay only through its doors."""

    def __init__(self, seed: int, doors: list[Door], http: aiohttp.ClientSession, durability: str) -> None:
        self.seed = seed
        self.durability = durability  # that `accepted` must name
        self.doors = doors
        self.http = http
        self.books = Books()
        self.is_ending = False  # nobody begins anything new, and everybody finishes what they have
        self._tokens: dict[tuple[str, str], str] = {}
        self._errands: set[asyncio.Task[None]] = set()
        self._random = chance(seed, "errands")

    def token(self, address: str, scope: str = "send receive") -> str:
        if (address, scope) not in self._tokens:
            tenant, _, name = address.partition("/")
            claims = {"sub": name, "tenant": tenant, "scope": scope, "exp": int(time.time()) + TOKEN_LIFE_S}
            self._tokens[address, scope] = jwt.encode(claims, SECRET, algorithm="HS256")
        return self._tokens[address, scope]

    async def call(
        self, who: str, method: str, path: str, body: Frame | None = None, scope: str = "send receive",
        instance: int | None = None,
    ) -> tuple[int, Frame]:  # fmt: skip
        """One HTTP call through any instance: its status and body, or 0 if no answer came."""
        number = self._random.randrange(len(self.doors)) if instance is None else instance
        try:
            async with asyncio.timeout(CALL_WITHIN_S), self.http.request(
                method, f"{self.doors[number].url}{path}", json=body,
                headers={"Authorization": f"Bearer {self.token(who, scope)}"},
            ) as answer:  # fmt: skip
                return answer.status, await answer.json()
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
            return 0, {}

    # -- what became of a sending

    def note_outcome(self, key: Key, outcome: Frame, gives_up: bool) -> bool:
        """Whether its sender can leave it at that."""
        message = self.books.messages[key]
        if "is_new" in outcome:
            self.books.accepted(key, outcome["is_new"])
            return True
        code = outcome.get("code", "")
        self.books.counts[f"refused {code}" if code else "unanswered"] += 1
        if not code or code == "store_unavailable":
            message.doubts += 1
            return False
        if outcome.get("retryable") and not gives_up:
            return False
        if message.doubts == 0:
            message.refused = code
        return True

    # -- what a sender does about a message afterwards

    def after(self, draft: Draft) -> None:
        if self.books.messages[draft.key].accepted_at is None:
            return
        if draft.again:
            self.errand(self._send_again(draft))
        if draft.cancel_after_s is not None:
            self.errand(self._cancel(draft.key, draft.cancel_after_s))

    def errand(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    async def errands_done(self) -> None:
        while self._errands:
            await asyncio.gather(*self._errands)

    async def give_up_errands(self) -> None:
        """When nobody waits for them any more: they would find the session closed."""
        for task in tuple(self._errands):
            task.cancel()
        await asyncio.gather(*self._errands, return_exceptions=True)

    async def _send_again(self, draft: Draft) -> None:
        """The same id over HTTP, on two instances at once: it must be a duplicate on both."""
        _, name = draft.key.to.split("/")
        body = {"id": draft.key.id, **draft.fields}
        calls = [
            self.call(draft.key.sender, "POST", f"/v1/agents/{name}/messages", body, instance=n % len(self.doors))
            for n in range(2)
        ]
        for status, answer in await asyncio.gather(*calls):
            self.books.counts["sent again"] += 1
            if status == 202:
                self.books.accepted(draft.key, not answer["duplicate"])

    async def _cancel(self, key: Key, after_s: float) -> None:
        await asyncio.sleep(after_s)
        message, name = self.books.messages[key], key.to.partition("/")[2]
        message.cancel = "asked"
        for _ in range(TRIES):
            status, _ = await self.call(key.sender, "DELETE", f"/v1/agents/{name}/messages/{quote(key.id)}")
            if status in CANCELLED:
                message.cancel, message.cancel_at = CANCELLED[status], time.monotonic()
                return
            await asyncio.sleep(TRY_AGAIN_S)
