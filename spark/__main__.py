"""`python -m spark JOB …`: runs one job. Bad input ends it with one clear line."""

import importlib
import logging
import re
import sys

from spark.errors import BadInput
from spark.sources.store import StoreError

JOBS = ("archive", "dump", "report", "audit")
_IN_TRACE = re.compile(r"StoreError: (.+)")


def main(argv: list[str]) -> int:
    if not argv or argv[0] not in JOBS:
        return complain(f"which job? There are {', '.join(JOBS)}")
    logging.getLogger().addFilter(is_no_interrupt)
    try:
        return int(importlib.import_module(f"spark.jobs.{argv[0]}").main(argv[1:]))
    except KeyboardInterrupt:
        return 130
    except BadInput as error:
        return complain(str(error), 2)
    except Exception as error:
        cause = clear_cause(error)
        if cause is None:
            raise
        return complain(cause)


def clear_cause(error: Exception) -> str | None:
    """The store's error. From a data source it comes back through the JVM, as text in another error."""
    if isinstance(error, StoreError):
        return str(error)
    told = _IN_TRACE.search(str(error))
    return told[1] if told else None


def is_no_interrupt(record: logging.LogRecord) -> bool:
    """py4j logs where Ctrl-C found it, with a traceback that helps nobody."""
    return not (record.exc_info and isinstance(record.exc_info[1], KeyboardInterrupt))


def complain(text: str, code: int = 1) -> int:
    print(f"Error: {text}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
