"""A short torture on each topology. `relay torture` is longer."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from bench.torture.main import torture
from bench.torture.mutations import DEDUP_KEY, try_out

pytestmark = [pytest.mark.xdist_group("torture"), pytest.mark.timeout(400)]  # what is broken takes its time to heal


@pytest.mark.parametrize(("topology", "seed"), [("single", 3), ("sentinel", 2), ("cluster", 1)])
def test_every_promise_holds_whatever_is_broken(topology: str, seed: int, tmp_path: Path) -> None:
    told = io.StringIO()

    found = torture(topology, seed, 24, tmp_path, Console(file=told, width=200))

    assert found.breaches == [], told.getvalue()
    # So that there was something to break. How much depends on the machine: a busy one has failovers of its own.
    assert found.accepted > 50
    assert len(found.faults) > 8
    assert found.counts["redelivered"] > 0


def test_a_relay_without_a_safeguard_is_noticed() -> None:
    found = try_out(DEDUP_KEY, 1, Console(file=io.StringIO()))

    assert "stored once" in {breach.promise for breach in found.breaches}
