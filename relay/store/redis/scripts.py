"""The Lua scripts of the store, each prefixed with the parts of lib/ that it uses."""

import re
from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from importlib.resources import files

_USES = re.compile(r"^-- Uses (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """One complete script, and the hash by which the server knows it."""

    name: str
    text: bytes
    sha: bytes


def _read(*path: str) -> str:
    return files("relay.store").joinpath("scripts", *path).read_text()


@cache
def script(name: str) -> Script:
    """The script of that name, whole."""
    flags, own = _read(f"{name}.lua").split("\n", 1)
    uses = _USES.search(own)
    parts = [_read("lib", f"{part.strip()}.lua") for part in uses[1].split(",")] if uses else []
    text = "\n".join([flags, *parts, own]).encode()  # the server looks for flags in the first line
    return Script(name, text, sha1(text, usedforsecurity=False).hexdigest().encode())
