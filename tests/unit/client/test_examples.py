"""Every public name says by an example what it does, and the example is true."""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import relay.client
import relay.testing
from tests.unit.client import examples

PUBLIC = [getattr(module, name) for module in (relay.client, relay.testing) for name in module.__all__]
CLASSES = [one for one in PUBLIC if inspect.isclass(one)]


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """What the kind itself and those that it is made of define."""
    own = {
        name: member
        for base in reversed(kind.__mro__)
        if base.__module__ != "builtins"
        for name, member in vars(base).items()
    }
    for name, member in own.items():
        is_own = inspect.isfunction(member) or isinstance(member, property | classmethod | staticmethod)
        if not name.startswith("_") and is_own:
            yield name, member


DOCUMENTED = {one.__name__: one for one in CLASSES} | {
    f"{kind.__name__}.{name}": member for kind in CLASSES for name, member in members(kind)
}


FOR_AGENTS = {f"FakeRelay.{name}" for name in ("connect", "call", "close")}  # tests do not call these


@pytest.mark.parametrize("name", sorted(DOCUMENTED.keys() - FOR_AGENTS))
def test_every_public_name_has_an_example(name: str) -> None:
    doc = inspect.getdoc(DOCUMENTED[name]) or ""
    owner = inspect.getdoc(DOCUMENTED[name.partition(".")[0]]) or ""

    assert ">>>" in doc or f"`{name.partition('.')[2]}`" in owner


@pytest.mark.parametrize("name", [name for name, one in DOCUMENTED.items() if ">>>" in (inspect.getdoc(one) or "")])
async def test_the_example_is_true(name: str, tmp_path: Path) -> None:
    assert await examples.run(inspect.getdoc(DOCUMENTED[name]) or "", tmp_path) == []
