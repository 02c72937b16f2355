"""Checks of the machine that the doctor runs on, for instances that are started there."""

from collections.abc import Iterator

from relay.doctor.finding import Finding, warning
from relay.server.open_files import RESERVED, SHARES, limits_within
from relay.settings import Settings


def open_files(settings: Settings, most: int) -> Iterator[Finding]:
    """`most`: the hard limit. The default of RELAY_MAX_CONNECTIONS is a ceiling, and nobody's plan."""
    limits = limits_within(settings, most)
    planned = settings.max_connections if settings.max_connections != Settings().max_connections else 0
    needed = max(planned, SHARES * settings.max_connections_per_address) + RESERVED
    if limits.connections < planned or limits.per_address < settings.max_connections_per_address:
        yield warning(
            "open_files",
            f"a process may open {most} files here: an instance admits {limits.connections} connections, and "
            f"{limits.per_address} of one address before they authenticate",
            f"ulimit -Hn {needed}; systemd: LimitNOFILE={needed}; docker: --ulimit nofile={needed}",
        )
