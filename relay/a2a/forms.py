"""A2A's objects: read from 1.0 or 0.3 JSON, checked, and converted to 1.0, which the relay uses itself."""

import base64
import binascii
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

import orjson

Json = dict[str, Any]

SUBMITTED, WORKING, COMPLETED = "TASK_STATE_SUBMITTED", "TASK_STATE_WORKING", "TASK_STATE_COMPLETED"
FAILED, CANCELED, REJECTED = "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED"
INPUT_REQUIRED, AUTH_REQUIRED = "TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED"
TERMINAL = frozenset((COMPLETED, FAILED, CANCELED, REJECTED))
INTERRUPTED = frozenset((INPUT_REQUIRED, AUTH_REQUIRED))
STATES = TERMINAL | INTERRUPTED | {SUBMITTED, WORKING}
OLD_STATES = {state: state.removeprefix("TASK_STATE_").lower().replace("_", "-") for state in STATES}
_STATES = {state: state for state in STATES} | {old: state for state, old in OLD_STATES.items()}
_ROLES = {name: f"ROLE_{name.removeprefix('ROLE_').upper()}" for name in ("user", "agent", "ROLE_USER", "ROLE_AGENT")}
_CONTENTS = ("text", "raw", "url", "data")
WRAPPED_VALUE = "data_part_compat"  # how 0.3 carries data that is no object: {"value": …} and this in the metadata


DEEPEST = 200  # levels of a reply; the answer around it adds some
WRITTEN = 254  # levels that JSON writers write


class NotA2A(ValueError):
    """Names the invalid field."""


def readable(text: bytes) -> object:
    """The agent's JSON. Values that cannot be passed on (huge numbers, deep nesting) become text."""
    try:
        value: object = orjson.loads(text)
    except (orjson.JSONDecodeError, RecursionError):
        return text.decode(errors="replace")
    return value if is_shallow(value) else text.decode(errors="replace")


def is_shallow(value: object) -> bool:
    """Whether a value can be written again as a part of a larger one."""
    for _ in range(WRITTEN - DEEPEST):
        value = [value]
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError:
        return False
    return True


def _object(value: object, name: str) -> Json:
    if not isinstance(value, dict):
        raise NotA2A(f"{name}: expected an object")
    return value


def _text(fields: Json, name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value:
        raise NotA2A(f"{name}: expected a string that is not empty")
    return value


def _texts(value: object, name: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise NotA2A(f"{name}: expected a list of strings")
    return value


def _string(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise NotA2A(f"{name}: expected a string")
    return value


def _given(fields: Json, checks: Iterable[tuple[str, Callable[[object, str], object]]]) -> Json:
    """Those optional fields that are there and say something."""
    given = {name: check(fields[name], name) for name, check in checks if fields.get(name) is not None}
    return {name: value for name, value in given.items() if value not in ("", [], {})}


# -- parts, messages, artifacts


def part(value: object) -> Json:
    fields = _object(value, "part")
    if "kind" in fields:
        fields = _newer_part(fields)
    contents = [name for name in _CONTENTS if fields.get(name) is not None] or [
        name for name in ("data",) if name in fields
    ]
    if len(contents) != 1:
        raise NotA2A("part: expected one of text, raw, url, data")
    (name,) = contents
    if name != "data":
        _string(fields[name], name)
    if name == "raw":
        _check_base64(fields["raw"])
    rest = (("metadata", _object), ("filename", _string), ("mediaType", _string))
    return {name: fields[name], **_given(fields, rest)}


def _newer_part(fields: Json) -> Json:
    shared = {name: fields[name] for name in ("metadata",) if name in fields}
    match fields["kind"]:
        case "text":
            return {"text": fields.get("text"), **shared}
        case "data":
            return _newer_data(_object(fields.get("data"), "data"), shared)
        case "file":
            file = _object(fields.get("file"), "file")
            names = (("bytes", "raw"), ("uri", "url"), ("name", "filename"), ("mimeType", "mediaType"))
            return {new: file[old] for old, new in names if file.get(old) is not None} | shared
    raise NotA2A("kind: expected text, data or file")


def _newer_data(data: Json, shared: Json) -> Json:
    metadata = shared.get("metadata")
    if isinstance(metadata, dict) and metadata.get(WRAPPED_VALUE) and "value" in data:
        rest = {name: value for name, value in metadata.items() if name != WRAPPED_VALUE}
        return {"data": data["value"], "metadata": rest}
    return {"data": data, **shared}


def _check_base64(text: str) -> None:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise NotA2A("raw: expected base64") from None


def _parts(fields: Json) -> list[Json]:
    parts = fields.get("parts")
    if not isinstance(parts, list) or not parts:
        raise NotA2A("parts: expected a list that is not empty")
    return [part(value) for value in parts]


def message(value: object, role: str | None = None) -> Json:
    """A Message. `role`: what it is if it does not say. Its ids are as they came."""
    fields = _object(value, "message")
    said_role = fields.get("role") or role
    known = _ROLES.get(said_role) if isinstance(said_role, str) else None
    if known is None:
        raise NotA2A("role: expected ROLE_USER or ROLE_AGENT")
    rest = (
        ("contextId", _string),
        ("taskId", _string),
        ("metadata", _object),
        ("extensions", _texts),
        ("referenceTaskIds", _texts),
    )
    return {"messageId": _text(fields, "messageId"), "role": known, "parts": _parts(fields), **_given(fields, rest)}


def artifact(value: object) -> Json:
    fields = _object(value, "artifact")
    rest = (("name", _string), ("description", _string), ("metadata", _object), ("extensions", _texts))
    return {"artifactId": _text(fields, "artifactId"), "parts": _parts(fields), **_given(fields, rest)}


# -- what an agent says of a task


def status(value: object) -> Json:
    fields = _object(value, "status")
    state = fields.get("state")
    if not isinstance(state, str) or state not in _STATES:
        raise NotA2A("state: expected a state of a task")
    checked: Json = {"state": _STATES[state]}
    if fields.get("message") is not None:
        checked["message"] = message(fields["message"], role="agent")
    if fields.get("timestamp") is not None:
        checked["timestamp"] = _timestamp(fields["timestamp"])
    return checked


def timestamp(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _timestamp(value: object) -> str:
    try:
        at = datetime.fromisoformat(_string(value, "timestamp"))
        if at.tzinfo is None:
            raise NotA2A("timestamp: expected an offset, or Z")
        return timestamp(at)
    except (ValueError, OverflowError):
        raise NotA2A("timestamp: expected a time of RFC 3339") from None


def status_update(value: Json) -> Json:
    return {"status": status(value.get("status")), **_given(value, (("metadata", _object),))}


def artifact_update(value: Json) -> Json:
    flags = {name: True for name in ("append", "lastChunk") if value.get(name) is True}
    return {"artifact": artifact(value.get("artifact")), **flags, **_given(value, (("metadata", _object),))}


def task(value: Json) -> Json:
    checked: Json = {"status": status(value.get("status"))}
    for name, form in (("artifacts", artifact), ("history", message)):
        if value.get(name) is not None:
            if not isinstance(value[name], list):
                raise NotA2A(f"{name}: expected a list")
            checked[name] = [form(element) for element in value[name]]
    return checked | _given(value, (("metadata", _object),))


_KINDS: dict[str, tuple[str, Callable[[Json], Json]]] = {
    "message": ("message", lambda value: message(value, role="agent")),
    "task": ("task", task),
    "status-update": ("statusUpdate", status_update),
    "artifact-update": ("artifactUpdate", artifact_update),
}
_NAMES = dict(_KINDS.values())


def parse_reply(payload: object) -> tuple[str, Json] | None:
    """An agent's reply as A2A: its field name in 1.0's StreamResponse, and the object. None if it is not A2A."""
    if not isinstance(payload, dict):
        return None
    name, value = _name_of(payload)
    if name is None or not isinstance(value, dict):
        return None
    try:
        return name, _NAMES[name](value)
    except NotA2A:
        return None


def _name_of(payload: Json) -> tuple[str | None, object]:
    kind = payload.get("kind")
    if isinstance(kind, str) and kind in _KINDS:
        return _KINDS[kind][0], payload
    if len(payload) == 1 and (name := next(iter(payload))) in _NAMES:
        return name, payload[name]
    if "parts" in payload and "messageId" in payload:
        return "message", payload
    if "artifact" in payload:
        return "artifactUpdate", payload
    if "status" in payload:
        return ("task" if "id" in payload or "artifacts" in payload else "statusUpdate"), payload
    return None, None
