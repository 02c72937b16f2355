"""The handle of an entry: its stream id, with `p<priority>` above priority 0."""

import re

_ENTRY = re.compile(r"((?:0|[1-9][0-9]{0,17})-(?:0|[1-9][0-9]{0,17}))(?:p([1-9]))?")  # one spelling per entry


def parse_entry(handle: str) -> tuple[str, int] | None:
    """Stream id and priority of an entry's handle; None if the relay never made such a handle."""
    match = _ENTRY.fullmatch(handle)
    if match is None:
        return None
    return match[1], int(match[2] or 0)
