"""Reads what the relay answers. A payload may be any JSON: it is passed over, and kept as its sender wrote it."""

import re
from typing import Any

import orjson

_PAYLOAD = re.compile(rb'[{,]\s*"payload"\s*:')  # stands in no text: there a quote has a backslash
_MARK = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{},]', re.DOTALL)
_DEEPER = {b"[": 1, b"{": 1, b"]": -1, b"}": -1}
_BLANKS = bytes.maketrans(b"\n\r\t", b"   ")


def one_line(payload: bytes) -> bytes:
    """Line breaks and tabs in JSON are blanks."""
    return payload.translate(_BLANKS)


def read_answer(text: bytes) -> Any:
    """An answer of the relay, in which the payloads of messages are Fragments. Raises ValueError if it is no JSON."""
    answer = orjson.loads(_with_payloads_as_text(text))
    rows = answer.get("messages") if isinstance(answer, dict) else None
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict) and "payload" in row:
            row["payload"] = orjson.Fragment(row["payload"])
    return answer


def _with_payloads_as_text(text: bytes) -> bytes:
    """Numbers of any size, and any depth, are no matter in a string."""
    parts: list[bytes] = []
    at = 0
    while found := _PAYLOAD.search(text, at):
        end = _value_end(text, found.end())
        payload = one_line(text[found.end() : end]).decode()
        parts += (text[at : found.end()], orjson.dumps(payload))
        at = end
    return b"".join((*parts, text[at:]))


def _value_end(text: bytes, at: int) -> int:
    """Where the value that begins there ends. Raises ValueError."""
    depth = 0
    for mark in _MARK.finditer(text, at):
        step = _DEEPER.get(mark[0], 0)
        if depth == 0 and (step < 0 or mark[0] == b","):
            return mark.start()
        depth += step
    raise ValueError("it does not end")
