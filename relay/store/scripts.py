"""The Lua scripts: found beside this file, with what they use put before them."""

import re
from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from importlib.resources import files

_USES = re.compile(r"^-- Uses (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """One transition, whole, and the name by which the server knows it."""

    name: str
    text: bytes
    sha: bytes


def _read(name: str) -> str:
    return (files(__package__) / "scripts" / f"{name}.lua").read_text()


@cache
def script(name: str) -> Script:
    """The script of that name, whole."""
    own = _read(name)
    uses = _USES.search(own)
    parts = [_read(part.strip()) for part in uses[1].split(",")] if uses else []
    text = "\n".join([*parts, own]).encode()
    return Script(name, text, sha1(text, usedforsecurity=False).hexdigest().encode())
