"""Open files: how many connections the system lets this process have."""

import resource
from contextlib import suppress
from dataclasses import dataclass

from relay.settings import Settings

RESERVED = 256  # for links to the store (two for each master), logs, and connections that are being refused
UNLIMITED = 2**31  # more than any system has
SHARES = 4  # so many addresses are needed to take all connections


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits on the connections of one process: as set, or as many as its files allow."""

    open_files: int
    connections: int  # WebSockets and plain HTTP together
    per_address: int  # unauthenticated ones; 0: off


def raise_limit(settings: Settings) -> None:
    """Raises the soft limit to what the settings need, as far as the hard limit allows."""
    soft, hard = _limits()
    wanted = min(most_connections(settings) + RESERVED, hard)
    if soft < wanted:
        with suppress(ValueError, OSError):  # a system may allow less than its hard limit says
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def connection_limits(settings: Settings) -> ConnectionLimits:
    """What the soft limit of this process allows."""
    return limits_within(settings, _limits()[0])


def most_open_files() -> int:
    """How far raise_limit can go."""
    return _limits()[1]


def _limits() -> tuple[int, int]:
    """Soft and hard. Python has -1 for none."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        soft if soft != resource.RLIM_INFINITY else UNLIMITED,
        hard if hard != resource.RLIM_INFINITY else UNLIMITED,
    )


def limits_within(settings: Settings, open_files: int) -> ConnectionLimits:
    """What so many open files allow."""
    reserved = min(RESERVED, open_files // 2)
    connections = min(most_connections(settings), open_files - reserved)
    share = max(1, (open_files - reserved) // SHARES)
    return ConnectionLimits(open_files, connections, min(settings.max_connections_per_address, share))


def most_connections(settings: Settings) -> int:
    """WebSockets, and as many plain HTTP connections."""
    return 2 * settings.max_connections
