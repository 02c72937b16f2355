"""Preloads jemalloc, if the machine has it, for a server that was built without it."""

import os
from collections.abc import Iterable
from pathlib import Path

PLACES = ("/usr/lib/*/libjemalloc.so.2", "/usr/lib64/libjemalloc.so.2", "/usr/lib/libjemalloc.so.2")


def preloaded(places: Iterable[str] = PLACES) -> dict[str, str]:
    """Additional environment for such a server. The loader ignores a library that does not fit.

    The packaged server is built with libc's allocator, which takes about a third of its time under load.
    """
    for place in places:
        for library in sorted(Path("/").glob(place.lstrip("/"))):
            return {"LD_PRELOAD": ":".join(filter(None, (os.environ.get("LD_PRELOAD"), str(library))))}
    return {}
