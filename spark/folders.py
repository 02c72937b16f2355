"""Folders on whatever filesystem Spark writes to, and the two moves on which the archive's promises rest."""

import ctypes
import errno
import os
import sys
from typing import Any

from pyspark.sql import SparkSession

_AT_FDCWD, _RENAME_EXCHANGE, _RENAME_SWAP = -100, 2, 2


class Folders:
    """Paths are Spark's: a local path, or a url such as hdfs://…"""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        configuration = spark.sparkContext._jsc.hadoopConfiguration()
        self._files = self._path(root).getFileSystem(configuration)
        self.is_local: bool = self._files.getScheme() == "file"

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)

    def exists(self, path: str) -> bool:
        return bool(self._files.exists(self._path(path)))

    def names(self, path: str) -> list[str]:
        """What is in a folder; nothing if there is none."""
        if not self.exists(path):
            return []
        return sorted(status.getPath().getName() for status in self._files.listStatus(self._path(path)))

    def size_bytes(self, path: str) -> int:
        return int(self._files.getContentSummary(self._path(path)).getLength())

    def remove(self, path: str) -> None:
        self._files.delete(self._path(path), True)

    def move(self, source: str, target: str) -> None:
        """In one step, to a place where nothing is."""
        self._files.mkdirs(self._path(target).getParent())
        if not self._files.rename(self._path(source), self._path(target)):
            raise OSError(errno.EEXIST, "could not move", source, None, target)


def can_exchange() -> bool:
    """Whether this system can exchange two folders in one step."""
    return sys.platform == "darwin" or (sys.platform == "linux" and hasattr(ctypes.CDLL(None), "renameat2"))


def exchange(one: str, other: str) -> None:
    """Two local folders change places in one step: whoever looks finds the one or the other, never both or none."""
    system = ctypes.CDLL(None, use_errno=True)
    first, second = os.fsencode(one), os.fsencode(other)
    if sys.platform == "darwin":
        failed = system.renamex_np(first, second, _RENAME_SWAP)
    else:
        failed = system.renameat2(_AT_FDCWD, first, _AT_FDCWD, second, _RENAME_EXCHANGE)
    if failed:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), one, None, other)
