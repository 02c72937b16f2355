"""Programs that the relay starts: their version, and their place in a Python package."""

import importlib.util
import re
import subprocess
from pathlib import Path

ANSWERS_WITHIN_S = 30.0


def major_version(program: str, option: str, pattern: str) -> int:
    """The major version that a program prints with that option; 0 if it does not run."""
    command = [program, option]
    try:
        shown = subprocess.run(command, capture_output=True, text=True, timeout=ANSWERS_WITHIN_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    number = re.search(pattern, shown.stdout + shown.stderr)
    return int(number[1]) if number else 0


def package_folder(name: str) -> Path | None:
    """Where a package is installed, found without importing it: that may take a third of a second."""
    package = importlib.util.find_spec(name)
    return Path(package.origin).parent if package and package.origin else None
