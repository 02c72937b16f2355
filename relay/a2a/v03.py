"""A2A 0.3: the same objects in that version's form."""

from typing import Any

from relay.a2a.forms import INTERRUPTED, OLD_STATES, TERMINAL, WRAPPED_VALUE, Json


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
    return {**new, "parts": [part(each) for each in new["parts"]]}


def message(new: Json) -> Json:
    return {"kind": "message", **_with_parts(new), "role": new["role"].removeprefix("ROLE_").lower()}


def status(new: Json) -> Json:
    old = {**new, "state": OLD_STATES[new["state"]]}
    if "message" in new:
        old["message"] = message(new["message"])
    return old


def task(new: Json) -> Json:
    old = {"kind": "task", **new, "status": status(new["status"])}
    if "artifacts" in new:
        old["artifacts"] = [_with_parts(artifact) for artifact in new["artifacts"]]
    if "history" in new:
        old["history"] = [message(said) for said in new["history"]]
    return old


def event(name: str, new: Json) -> Json:
    """One event of a stream. `final` says that the stream ends here."""
    match name:
        case "statusUpdate":
            is_final: Any = new["status"]["state"] in TERMINAL | INTERRUPTED
            return {"kind": "status-update", **new, "status": status(new["status"]), "final": is_final}
        case "artifactUpdate":
            return {"kind": "artifact-update", **new, "artifact": _with_parts(new["artifact"])}
    return task(new)
