"""Errors of jobs."""

import os
from pathlib import Path


class BadInput(Exception):
    """Bad input. The message says what is wrong and what to do; the job ends with exit code 2."""


def check_output(folder: Path) -> None:
    """Makes the folder that a job writes into. Raises BadInput here, where the reason is still clear."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"--out {folder}: {error.strerror}") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise BadInput(f"--out {folder}: no permission to write there")
