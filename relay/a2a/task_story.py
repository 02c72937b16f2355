"""The story of a task: turns the state of the message and the agent's replies into an A2A task."""

import copy
from datetime import UTC, datetime

from relay.a2a.forms import (
    CANCELED,
    COMPLETED,
    FAILED,
    INTERRUPTED,
    SUBMITTED,
    TERMINAL,
    WORKING,
    Json,
    parse_reply,
    timestamp,
)

REPLY = "reply"  # the artifact that plain replies make up

# What the state of a message means for its task, and what the caller is told.
BY_MESSAGE_STATE = {
    "queued": (SUBMITTED, ""),
    "delayed": (SUBMITTED, ""),
    "held": (WORKING, ""),
    "acked": (COMPLETED, ""),
    "dead": (FAILED, "The agent could not handle the message."),
    "expired": (FAILED, "The message expired before the agent answered."),
    "cancelled": (CANCELED, ""),
}


class Story:
    """Told from the beginning, or from where it was when it was forgotten; `events` is what a stream would have said
    on the way."""

    def __init__(self, task_id: str, context_id: str) -> None:
        self.task_id = task_id
        self.context_id = context_id
        self.status: Json = {"state": SUBMITTED}
        self.artifacts: dict[str, Json] = {}
        self.history: list[Json] = []  # what the agent said before what it says now
        self.metadata: Json = {}
        self.events: list[tuple[str, Json]] = []

    @property
    def state(self) -> str:
        return str(self.status["state"])

    @property
    def has_ended(self) -> bool:
        return self.state in TERMINAL

    @property
    def waits_for_caller(self) -> bool:
        return self.state in INTERRUPTED

    @property
    def rests(self) -> bool:
        """Nothing more will happen unless the caller does something."""
        return self.has_ended or self.waits_for_caller

    def copy(self) -> "Story":
        """One that can be placed without the other."""
        other = copy.copy(self)
        other.history = [*self.history]
        return other

    def forget(self) -> None:
        """Of what was told, only what is needed to go on is kept: the state, and whether there is a plain reply."""
        self.artifacts = {REPLY: {"artifactId": REPLY, "parts": []}} if REPLY in self.artifacts else {}
        self.history, self.metadata, self.events = [], {}, []

    def task(self, history_length: int | None = None) -> Json:
        """The Task as it is now."""
        task: Json = {"id": self.task_id, "contextId": self.context_id, "status": self.status}
        if self.artifacts:
            task["artifacts"] = list(self.artifacts.values())
        kept = len(self.history) if history_length is None else min(history_length, len(self.history))
        if kept:
            task["history"] = self.history[-kept:]
        if self.metadata:
            task["metadata"] = self.metadata
        return task

    def status_update(self) -> tuple[str, Json]:
        return "statusUpdate", self._ours({"status": self.status})

    # -- what the agent said

    def hear(self, payload: object, is_end: bool) -> None:
        """One reply of the agent, in order. An end ends the task, unless it asks the caller for something."""
        if self.has_ended:
            return
        name, value = parse_reply(payload) or ("", {})
        match name:
            case "message":
                self._set_status({"state": COMPLETED if is_end else WORKING, "message": value})
            case "statusUpdate":
                self._set_status(value["status"], value.get("metadata"))
            case "artifactUpdate":
                self._begin()
                self._add_artifact(value)
            case "task":
                self._replace(value)
            case _:
                self._hear_plain(payload, is_end)
        if is_end and self.state not in TERMINAL | INTERRUPTED:
            self._set_status({**self.status, "state": COMPLETED})

    def _hear_plain(self, payload: object, is_end: bool) -> None:
        """Plain replies are the chunks of one artifact; null adds nothing to it."""
        self._begin()
        if payload is None:
            return
        part = {"text": payload} if isinstance(payload, str) else {"data": payload}
        update: Json = {"artifact": {"artifactId": REPLY, "parts": [part]}}
        if REPLY in self.artifacts:
            update["append"] = True
        if is_end:
            update["lastChunk"] = True
        self._add_artifact(update)

    def _begin(self) -> None:
        if self.state == SUBMITTED or self.waits_for_caller:
            self._set_status({"state": WORKING})

    def _set_status(self, status: Json, metadata: Json | None = None) -> None:
        if "message" in status:
            status = {**status, "message": self._ours(status["message"])}
        self._turn_to(status)
        name, event = self.status_update()
        self.events.append((name, {**event, "metadata": metadata} if metadata else event))

    def _turn_to(self, status: Json) -> None:
        before = self.status.get("message")
        if before is not None and before != status.get("message"):
            self.history.append(before)
        self.status = status

    def _add_artifact(self, update: Json) -> None:
        new = update["artifact"]
        known = self.artifacts.get(new["artifactId"])
        if known is not None and update.get("append"):
            new = {**known, "parts": known["parts"] + new["parts"]}
        self.artifacts[new["artifactId"]] = new
        self.events.append(("artifactUpdate", self._ours(update)))

    def _replace(self, task: Json) -> None:
        """The agent sent a whole task: its status, artifacts and history count, under our ids."""
        self.artifacts |= {artifact["artifactId"]: artifact for artifact in task.get("artifacts", ())}
        self.metadata |= task.get("metadata", {})
        if "history" in task:
            self.history = [self._ours(message) for message in task["history"]]
        for artifact in task.get("artifacts", ()):
            self.events.append(("artifactUpdate", self._ours({"artifact": artifact})))
        self._set_status(task["status"])

    def _ours(self, value: Json) -> Json:
        """Whatever ids an agent writes, the caller knows the task by ours."""
        return {**value, "taskId": self.task_id, "contextId": self.context_id}

    # -- what became of the message

    def place(self, message_state: str, at_ms: int | None, has_parts: bool) -> None:
        """Where the message is that nobody has answered to the end."""
        state, text = BY_MESSAGE_STATE[message_state]
        if self.has_ended or (has_parts and state not in TERMINAL):
            return
        status: Json = {"state": state}
        if at_ms is not None:
            status["timestamp"] = timestamp(datetime.fromtimestamp(at_ms / 1_000, UTC))
        if text:
            status["message"] = self._ours(
                {"messageId": f"{self.task_id}-end", "role": "ROLE_AGENT", "parts": [{"text": text}]}
            )
        self._turn_to(status)
