"""The relay's own client, as users run it: with a file for its outbox, killed at random, and counted afterwards."""

import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from bench.client_kills import Counted, count
from bench.killed_clients import STOP
from bench.torture.books import Breach
from bench.torture.processes import RelayProcess
from bench.torture.traffic import CLIENTS

PACE_S = 0.05
SETTLED_WITHIN_S = 60.0
ENDS_WITHIN_S = 20.0


class Client(RelayProcess):
    """One that sends numbers, or one that handles them. What it was told and did is in files of its own."""

    program = "bench.killed_clients"

    def __init__(self, role: str, urls: list[str], token: str, folder: Path, code: Path) -> None:
        words = (role, ",".join(urls), token, str(folder), str(PACE_S))
        super().__init__(f"client {role}", words, {}, folder, code)

    def ends_well(self, within_s: float) -> bool:
        """Whether it comes to an end by itself, with success."""
        assert self._process is not None
        try:
            self._wait(within_s)
        except subprocess.TimeoutExpired:
            return False
        return self._process.returncode == 0


def finish(clients: list[Client], folder: Path, goes_back: bool, counts: Counter[str]) -> Iterator[Breach]:
    """Lets them end when everything is settled, and counts. Blocks."""
    (folder / STOP).touch()
    sender, receiver = clients
    if not sender.ends_well(SETTLED_WITHIN_S):
        yield Breach("the client settles all", f"the sender has not after {SETTLED_WITHIN_S:.0f} s: {sender.tail()}")
    receiver.terminate()
    if not receiver.ends_well(ENDS_WITHIN_S):
        yield Breach("the client settles all", f"the receiver failed: {receiver.tail()}")
    found = count(folder)
    counts["client sent"], counts["client handled"] = found.sent, found.handled
    yield from judge(found, goes_back)


def judge(found: Counted, goes_back: bool) -> Iterator[Breach]:
    """What is sent before a store is known to have gone back overtakes what must be sent again."""
    if found.lost:
        yield Breach(
            "the client loses nothing", f"{len(found.lost)} of {found.sent} were never handled: {found.lost[:9]}"
        )
    if found.doubled:
        yield Breach("the client handles once", f"{len(found.doubled)} were handled twice: {found.doubled[:9]}")
    if found.disordered and not goes_back:
        yield Breach("the client keeps order", f"threads out of order: {found.disordered}")


def roles() -> list[tuple[str, str]]:
    """Who there is: addresses with their roles."""
    return [(address, address.partition("/")[2]) for address in CLIENTS]
