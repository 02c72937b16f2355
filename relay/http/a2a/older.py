"""A2A 0.3: the same objects as that generation writes them."""

from typing import Any

from relay.http.a2a.forms import INTERRUPTED, OLD_STATES, TERMINAL, WRAPPED_VALUE, Json


def part(new: Json) -> Json:
    shared: Json = {"metadata": new["metadata"]} if "metadata" in new else {}
    if "text" in new:
        return {"kind": "text", "text": new["text"], **shared}
    if "data" in new:
        if isinstance(new["data"], dict):
            return {"kind": "data", "data": new["data"], **shared}
        metadata = {**new.get("metadata", {}), WRAPPED_VALUE: True}
        return {"kind": "data", "data": {"value": new["data"]}, "metadata": metadata}
    names = (("raw", "bytes"), ("url", "uri"), ("filename", "name"), ("mediaType", "mimeType"))
    return {"kind": "file", "file": {old: new[name] for name, old in names if name in new}, **shared}


def _with_parts(new: Json) -> Json:
    return {**new, "parts": [part(one) for one in new["parts"]]}


def message(new: Json) -> Json:
    return {"kind": "message", **_with_parts(new), "role": new["role"].removeprefix("ROLE_").lower()}


def status(new: Json) -> Json:
    found = {**new, "state": OLD_STATES[new["state"]]}
    if "message" in new:
        found["message"] = message(new["message"])
    return found


def task(new: Json) -> Json:
    found = {"kind": "task", **new, "status": status(new["status"])}
    if "artifacts" in new:
        found["artifacts"] = [_with_parts(one) for one in new["artifacts"]]
    if "history" in new:
        found["history"] = [message(one) for one in new["history"]]
    return found


def event(name: str, new: Json) -> Json:
    """One event of a stream. `final` says that the stream ends here."""
    match name:
        case "statusUpdate":
            is_final: Any = new["status"]["state"] in TERMINAL | INTERRUPTED
            return {"kind": "status-update", **new, "status": status(new["status"]), "final": is_final}
        case "artifactUpdate":
            return {"kind": "artifact-update", **new, "artifact": _with_parts(new["artifact"])}
    return task(new)
