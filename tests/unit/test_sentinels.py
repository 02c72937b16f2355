"""What a Sentinel says, and which replicas count."""

import pytest
from redis.exceptions import RedisError

from relay.store.redis import sentinels
from relay.store.redis.connect import home_at
from relay.store.redis.sentinels import Sentinels, View, _view

MASTER = ("10.0.0.1", 6379)


def a_replica(port: int = 6379, ip: str = "10.0.0.2", **fields: str) -> dict[str, str]:
    return {"ip": ip, "port": str(port), "flags": "slave", "master-link-status": "ok"} | fields


def test_replicas_that_are_up_and_linked_count() -> None:
    view = _view(MASTER, {"config-epoch": "7"}, [a_replica(1), a_replica(2)])

    assert (view.master, view.epoch, view.replicas, view.known) == (MASTER, 7, 2, 2)


@pytest.mark.parametrize(
    "state",
    [
        {"flags": "slave,s_down"},
        {"flags": "slave,o_down"},
        {"flags": "slave,disconnected"},
        {"master-link-status": "err"},
    ],
)
def test_a_replica_that_would_not_be_promoted_does_not_count(state: dict[str, str]) -> None:
    assert _view(MASTER, {"config-epoch": "7"}, [a_replica(1), a_replica(2) | state]).replicas == 1


def test_a_master_that_was_just_promoted_is_not_its_own_replica() -> None:
    promoted = a_replica(6379, "10.0.0.1", flags="slave,promoted")

    assert _view(MASTER, {"config-epoch": "7"}, [promoted, a_replica(1)]).replicas == 1


def seen(server: Sentinels, replicas: int, epoch: int = 7, known: int = 0) -> int:
    """What counts after every Sentinel has said this."""
    for sentinel in server._sentinels:
        server._views[sentinel] = View(MASTER, epoch, replicas, known)
    server._count_replicas()
    return server.replicas


@pytest.fixture
def server() -> Sentinels:
    server = home_at("redis+sentinel://s1,s2,s3/main")
    assert isinstance(server, Sentinels)
    return server


def test_a_replica_that_is_out_of_sight_for_a_moment_still_counts(server: Sentinels) -> None:
    assert (seen(server, 2), seen(server, 1)) == (2, 2)


def test_a_replica_that_stays_away_does_not_count_any_more(server: Sentinels) -> None:
    seen(server, 2)
    server._counts[2] -= sentinels.STILL_COUNTS_S

    assert seen(server, 1) == 1


def test_who_has_just_begun_asks_for_all_that_sentinels_know_of(server: Sentinels) -> None:
    at_first = seen(server, 1, known=2)
    server._began_at -= sentinels.STILL_COUNTS_S

    assert (at_first, seen(server, 1, known=2)) == (2, 1)


def linked(*ports: bytes) -> list[object]:
    """What a master answers to ROLE."""
    return [b"master", 100, [[b"10.0.0.2", port, b"90"] for port in ports]]


def test_a_replica_that_only_the_master_knows_counts(server: Sentinels) -> None:
    seen(server, 1)

    server.note_role(linked(b"6379", b"6380"))

    assert server.replicas == 2


def test_a_replica_that_comes_for_one_that_went_counts_beside_it(server: Sentinels) -> None:
    server.note_role(linked(b"6379"))

    server.note_role(linked(b"6380"))

    assert server.replicas == 2, "the one that went may be the next master"


@pytest.mark.parametrize("answer", [RedisError("LOADING"), [b"slave", b"10.0.0.1", 6379, b"connected", 100]])
def test_what_is_no_master_tells_of_no_replicas(server: Sentinels, answer: object) -> None:
    server.note_role(answer)

    assert server.replicas == 0


def test_after_a_failover_counting_begins_anew(server: Sentinels) -> None:
    seen(server, 2)
    server.note_role(linked(b"6379", b"6380"))

    assert seen(server, 1, epoch=8) == 1
