"""docker-compose.yml with its variables filled in, as tests ask about it."""

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.integration.deploy.programs import ROOT

FILE = ROOT / "docker-compose.yml"

_VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?:(?P<rule>:[-?])(?P<text>[^}]*))?\}")

Doc = dict[str, Any]


def made_env(folder: Path) -> dict[str, str]:
    """What deploy/make-env writes into a fresh copy of the project."""
    (folder / "deploy").mkdir()
    script = shutil.copy(ROOT / "deploy/make-env", folder / "deploy")
    subprocess.run([script], check=True)
    return dict(line.split("=", 1) for line in (folder / ".env").read_text().splitlines())


def load(environ: Mapping[str, str]) -> Doc:
    """The file as compose sees it. A variable that must be set and is not fails."""
    document: Doc = yaml.safe_load(_VARIABLE.sub(lambda found: _value(found, environ), FILE.read_text()))
    return document


def _value(found: re.Match[str], environ: Mapping[str, str]) -> str:
    if found["rule"] == ":-":
        return environ.get(found["name"]) or found["text"]
    return environ[found["name"]]


def environment(service: Doc) -> dict[str, str]:
    return {name: str(value) for name, value in service.get("environment", {}).items()}


def server_options(words: list[str]) -> dict[str, str]:
    """The options on a command line such as `sh -c … valkey-server --appendonly yes`."""
    options = words[words.index("valkey-server") + 1 :] if "valkey-server" in words else words
    return {name.removeprefix("--"): value for name, value in zip(options[::2], options[1::2], strict=True)}


def size(text: str) -> int:
    """1gb, 2G, 512M, 2Gi"""
    number, unit = re.fullmatch(r"(\d+)([kmgKMG])[iIbB]?", text).groups()  # type: ignore[union-attr]
    return int(number) * 1_024 ** (1 + "kmg".index(unit.lower()))


def seconds(span: str) -> float:
    """40s, 2m"""
    return float(span[:-1]) * {"s": 1, "m": 60, "h": 3_600}[span[-1]]
