"""How long messages may wait under the torture, by what was broken."""

import pytest

from bench.torture.report import COMES_RIGHT_S, NO_FAULT, QUIET_MOST_S, Stall, stuck
from bench.torture.story import BACK_KINDS, KINDS, STORE_KINDS, TOPOLOGIES, lasts_s


@pytest.mark.parametrize(
    ("kind", "most_s"),
    [
        (NO_FAULT, QUIET_MOST_S),
        ("cut client", COMES_RIGHT_S["single"]),
        ("stop instance", 40 + COMES_RIGHT_S["single"]),
    ],
)
def test_a_wait_has_a_bound_by_the_kind_of_its_fault(kind: str, most_s: float) -> None:
    within = Stall(1, most_s, most_s)

    assert stuck("single", {kind: within}, 1) == []
    for beyond in (Stall(1, most_s + 1, 0), Stall(1, 0, most_s + 1)):
        assert [one.promise for one in stuck("single", {kind: beyond}, 1)] == ["nothing stuck"]
        assert stuck("single", {kind: beyond}, 6) == []


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_every_kind_of_fault_has_its_length(topology: str) -> None:
    for kind in (*KINDS, *STORE_KINDS[topology], *BACK_KINDS[topology]):
        assert lasts_s(topology, kind.name) == kind.longest_s
