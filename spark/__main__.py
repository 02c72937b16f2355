"""`python -m spark JOB …`: runs one job. What it cannot do ends it with one clear line and exit code 2.

1 is a finding of a job that did its work: books that do not balance.
"""

import importlib
import logging
import re
import sys
import traceback

from redis.exceptions import RedisError

from spark.errors import BadInput
from spark.sources.store import StoreError
from spark.visible import guard

JOBS = ("archive", "dump", "report", "audit")
_IN_TRACE = re.compile(r"StoreError: (.+)|FAILED_READ_FILE\S* .*?(file:\S+?)\.?\s")


def main(argv: list[str]) -> int:
    if not argv or argv[0] not in JOBS:
        return complain(f"which job? There are {', '.join(JOBS)}")
    logging.getLogger().addFilter(is_no_interrupt)
    try:
        return int(importlib.import_module(f"spark.jobs.{argv[0]}").main(argv[1:]))
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        cause = clear_cause(error)
        if cause is None:
            traceback.print_exc()
        return complain(cause or f"the {argv[0]} failed")


def clear_cause(error: Exception) -> str | None:
    """What the input or the store has wrong. From a task it comes back through the JVM, as text in another error."""
    if isinstance(error, BadInput | StoreError | RedisError):
        return str(error)
    told = _IN_TRACE.search(str(error))
    if told is None:
        return None
    return told[1] or f"{told[2]} cannot be read"


def is_no_interrupt(record: logging.LogRecord) -> bool:
    """py4j logs where Ctrl-C found it, with a traceback that helps nobody."""
    return not (record.exc_info and isinstance(record.exc_info[1], KeyboardInterrupt))


def complain(text: str) -> int:
    print(f"Error: {text}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    guard()
    sys.exit(main(sys.argv[1:]))
