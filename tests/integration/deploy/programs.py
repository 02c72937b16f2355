"""Programs that check what we deploy; they come with the development packages on most platforms."""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def needs(name: str) -> pytest.MarkDecorator:
    """Skips a test where the packages bring no such program."""
    return pytest.mark.skipif(_path(name) is None, reason=f"there is no {name} for this platform")


def run(name: str, *words: str | Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Runs the program in the repository's root; what it says and its code are for the caller to judge."""
    return subprocess.run([_path(name) or name, *words], cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def _path(name: str) -> str | None:
    return shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
