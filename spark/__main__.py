"""`python -m spark JOB …`: runs one job. What cannot work ends with one clear line."""

import importlib
import re
import signal
import sys

from spark.store import StoreError

JOBS = ("archive", "dump", "report", "audit")
_IN_TRACE = re.compile(r"StoreError: (.+)")


def main(argv: list[str]) -> int:
    if not argv or argv[0] not in JOBS:
        return complain(f"which job? There are {', '.join(JOBS)}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return int(importlib.import_module(f"spark.jobs.{argv[0]}").main(argv[1:]))
    except KeyboardInterrupt:
        return 130
    except StoreError as error:
        return complain(str(error))
    except Exception as error:
        # An error in a data source comes back from the JVM as text.
        cause = _IN_TRACE.search(str(error))
        if cause is None:
            raise
        return complain(cause[1])


def complain(text: str) -> int:
    print(f"Error: {text}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
