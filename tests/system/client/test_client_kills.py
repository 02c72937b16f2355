"""Clients, instances and the server are killed at random. `python -m bench.client_kills` is longer."""

import pytest

from bench.client_kills import kill_clients

pytestmark = pytest.mark.xdist_group("client kills")


@pytest.mark.parametrize(("seed", "wipes"), [(36, False), (1, True)])
def test_what_is_sent_is_handled_once_and_in_order_whatever_is_killed(seed: int, wipes: bool) -> None:
    found, kills = kill_clients(4, seed, wipes)

    assert sum(kills.values()) == 4
    assert found.is_right(wipes), found
    assert found.sent > 0
    assert found.sent <= found.handled <= found.sent + kills.get("sender", 0)
