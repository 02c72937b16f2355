"""One A2A call: caller, agent, version, and the form of its answer."""

from dataclasses import dataclass
from typing import Literal

import orjson
from aiohttp import web

from relay.a2a import v03
from relay.a2a.errors import InvalidParams
from relay.a2a.following import FollowedTask, Follower
from relay.a2a.forms import Json
from relay.auth import Identity
from relay.core.instance.instance import Instance
from relay.http.app_keys import INSTANCE
from relay.http.responses import json_response

MAX_ID = 128

Generation = Literal["1.0", "0.3"]


@dataclass(frozen=True, slots=True)
class Rpc:
    """One call of an authenticated caller."""

    request: web.Request
    who: Identity
    agent: str
    generation: Generation
    id: str | int | float | None
    params: Json

    @property
    def instance(self) -> Instance:
        return self.request.app[INSTANCE]

    @property
    def tasks(self) -> Follower:
        return Follower(self.request, self.instance, self.who, self.agent)

    def result(self, value: Json) -> Json:
        return {"jsonrpc": "2.0", "id": self.id, "result": value}

    def event(self, name: str, value: Json) -> bytes:
        """An event of a stream, which is a response of its own."""
        return orjson.dumps(self.result({name: value} if self.generation == "1.0" else v03.event(name, value)))

    def task(self, followed: FollowedTask, is_answer_to_send: bool = False) -> web.Response:
        task = followed.story.task(self.history_length())
        if self.generation == "0.3":
            return json_response(self.result(v03.task(task)))
        return json_response(self.result({"task": task} if is_answer_to_send else task))

    def history_length(self) -> int | None:
        """How much of the history is wanted; None: all. In 0.3, 0 is all of it too."""
        asked = self.configuration().get("historyLength", self.params.get("historyLength"))
        if asked is None or (asked == 0 and self.generation == "0.3"):
            return None
        if not isinstance(asked, int) or isinstance(asked, bool) or asked < 0:
            raise InvalidParams("historyLength: expected a number from 0")
        return asked

    def configuration(self) -> Json:
        configuration = self.params.get("configuration")
        if configuration is not None and not isinstance(configuration, dict):
            raise InvalidParams("configuration: expected an object")
        return configuration or {}

    def task_id(self) -> str:
        task_id = self.params.get("id")
        if not isinstance(task_id, str) or not 0 < len(task_id) <= MAX_ID:
            raise InvalidParams("id: expected the id of a task")
        return task_id
