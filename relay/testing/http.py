"""What the fake relay answers over HTTP."""

import asyncio
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

from relay.testing.mailbox import Task
from relay.testing.post import Post, refusal, tenant_of, whole

if TYPE_CHECKING:
    from relay.testing.fake import FakeRelay

_MESSAGE = re.compile(r"/v1/agents/([^/]+)/messages(?:/([^/]+))?")
_TASK = re.compile(r"/v1/tasks/([^/]+)")
_AGENT = re.compile(r"/v1/agents/([^/]+)")
HttpAnswer = tuple[int, dict[str, Any]]


class FakeHttp:
    """The calls that the client makes: messages, tasks, registrations."""

    def __init__(self, relay: "FakeRelay") -> None:
        self._relay = relay

    @property
    def _post(self) -> Post:
        return self._relay.post

    async def call(self, method: str, path: str, token: str, body: Any) -> HttpAnswer:
        try:
            sender, _ = self._relay.identities.of_token(token)
        except PermissionError as error:
            return 401, {"error": refusal("unauthorized", str(error))}
        split = urlsplit(path)
        wait_s = float(parse_qs(split.query).get("wait_s", ["0"])[0])
        if found := _MESSAGE.fullmatch(split.path):
            to = whole(unquote(found[1]), tenant_of(sender))
            if method == "POST":
                return await self._ask(sender, to, body, wait_s)
            answer = self._cancel if method == "DELETE" else self._where
            return answer(sender, to, unquote(found[2]))
        if found := _TASK.fullmatch(split.path):
            return await self._task(sender, unquote(found[1]), wait_s)
        if found := _AGENT.fullmatch(split.path):
            return self._registration(method, whole(unquote(found[1]), tenant_of(sender)), body)
        return 404, {"error": refusal("not_found", "no such path")}

    def _cancel(self, sender: str, to: str, id: str) -> HttpAnswer:
        box = self._post.mailbox(to)
        entry = box.find(sender, id)
        if entry is None:
            return 404, {"error": refusal("not_found", "no such message in the mailbox")}
        if entry.holder is not None:
            return 409, {"error": refusal("busy", "somebody holds the message", True)}
        self._post.end(box, entry, "cancelled")
        return 200, {"id": id, "state": "cancelled"}

    def _where(self, sender: str, to: str, id: str) -> HttpAnswer:
        found = self._post.state_of(sender, to, id)
        if found is None:
            return 404, {"error": refusal("not_found", "no such message, or it ended long ago")}
        return 200, {"id": id, "to": to, "state": found[0], "attempt": found[1]}

    async def _ask(self, sender: str, to: str, body: dict[str, Any], wait_s: float) -> HttpAnswer:
        self._post.tasks.setdefault((sender, body["id"]), Task(to, by_http=True))
        outcome = self._post.send(sender, {"receipt": False, **body, "to": to, "request": True})
        if isinstance(outcome, dict):
            return {"queue_full": 429, "too_large": 413, "forbidden": 403}.get(outcome["code"], 400), {"error": outcome}
        status, found = await self._task(sender, body["id"], wait_s)
        return (200 if found.get("state") == "replied" else 202) if status == 200 else status, found

    async def _task(self, sender: str, id: str, wait_s: float) -> HttpAnswer:
        until = self._relay.clock.now() + wait_s
        while True:
            task = self._post.tasks.get((sender, id))
            if task is None:
                return 404, {"error": refusal("not_found", "no such task")}
            found = self._described(sender, id, task)
            if found["state"] not in ("queued", "held") or self._relay.clock.now() >= until:
                return 200, found
            news = asyncio.Event()
            self._post.news.append(news.set)
            timer = self._relay.clock.call_later(until - self._relay.clock.now(), news.set)
            await news.wait()
            timer.cancel()

    def _described(self, sender: str, id: str, task: Task) -> dict[str, Any]:
        found: dict[str, Any] = {"id": id, "to": task.to, "state": "replied"}
        if task.parts:
            found["parts"] = list(task.parts)
        if task.reply is not ...:
            return found | {"reply": task.reply}
        state, _ = self._post.state_of(sender, task.to, id) or ("expired", 1)
        return found | {"state": "queued" if state == "delayed" else state}

    def _registration(self, method: str, address: str, body: Any) -> HttpAnswer:
        known = self._relay.registrations.get(address)
        if method == "PUT":
            known = self._relay.registrations.setdefault(address, {})
            known |= body
        if known is None and not self._post.mailbox(address).is_known:
            return 404, {"error": refusal("not_found", "no such agent")}
        return 200, {"agent": address, "key": None, **(known or {})}
