"""Errors of jobs, and the folders that they are given."""

import os
import re
from pathlib import Path

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")  # two letters or more: one is a drive


class BadInput(Exception):
    """Bad input. The message says what is wrong and what to do; the job ends with exit code 2."""


def local_folder(text: str) -> Path:
    """The folder that an option names. Raises BadInput for a url: as a path, it would be a folder of that name here."""
    if scheme := _SCHEME.match(text):
        raise BadInput(
            f"{text}: the scheme {scheme[1]!r} is not supported; name a folder that this machine has, "
            "and copy to and from an object store what is finished"
        )
    return Path(text)


def check_output(folder: Path) -> None:
    """Makes the folder that a job writes into. Raises BadInput here, where the reason is still clear."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"--out {folder}: {error.strerror}") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise BadInput(f"--out {folder}: no permission to write there")
