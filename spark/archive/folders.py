"""The two atomic moves on which the archive's guarantees rest."""

import ctypes
import os
import sys
from pathlib import Path

_AT_FDCWD, _RENAME_EXCHANGE, _RENAME_SWAP = -100, 2, 2


def names(folder: Path) -> list[str]:
    """The names in a folder; empty if it does not exist."""
    return sorted(os.listdir(folder)) if folder.exists() else []


def move(source: Path, target: Path) -> None:
    """Moves a folder atomically to a new place: a reader finds all of it or nothing."""
    target.parent.mkdir(parents=True, exist_ok=True)
    source.rename(target)


def can_exchange() -> bool:
    """Whether this system can exchange two folders in one step."""
    return hasattr(ctypes.CDLL(None), "renamex_np" if sys.platform == "darwin" else "renameat2")


def exchange(first: Path, second: Path) -> None:
    """Exchanges two folders atomically: a reader finds the one or the other, never both or none."""
    system = ctypes.CDLL(None, use_errno=True)
    paths = os.fsencode(first), os.fsencode(second)
    if sys.platform == "darwin":
        failed = system.renamex_np(*paths, _RENAME_SWAP)
    else:
        failed = system.renameat2(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE)
    if failed:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(first), None, str(second))
