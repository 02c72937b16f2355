"""The Lua scripts of the store, found by name on any floor, each prefixed with the parts of lib/ that it uses."""

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


@cache
def _texts() -> dict[str, str]:
    """Every script and every part of lib/, by its name."""
    floors = files("relay.store").joinpath("scripts").iterdir()
    return {file.name.removesuffix(".lua"): file.read_text() for floor in floors for file in floor.iterdir()}


@cache
def script(name: str) -> Script:
    """The script of that name, whole."""
    flags, own = _texts()[name].split("\n", 1)
    uses = _USES.search(own)
    parts = [_texts()[part.strip()] for part in uses[1].split(",")] if uses else []
    text = "\n".join([flags, *parts, own]).encode()  # the server looks for flags in the first line
    return Script(name, text, sha1(text, usedforsecurity=False).hexdigest().encode())
