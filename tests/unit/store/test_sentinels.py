"""What a Sentinel says, which server is the master, and which replicas count."""

import time
from dataclasses import replace

import pytest
from redis.exceptions import RedisError

from relay.store.redis.servers import sentinels
from relay.store.redis.servers.connect import home_at
from relay.store.redis.servers.sentinels import Address, Sentinels, View, _view

A, B, C = ("10.0.0.1", 6379), ("10.0.0.2", 6379), ("10.0.0.3", 6379)


def a_server(address: Address, **fields: str) -> dict[str, str]:
    """As a Sentinel tells of a replica that is as it should be."""
    usual = {"flags": "slave", "role-reported": "slave", "master-link-status": "ok"}
    return {"ip": address[0], "port": str(address[1])} | usual | {key.replace("_", "-"): fields[key] for key in fields}


def a_master(address: Address, flags: str = "master") -> dict[str, str]:
    return a_server(address, flags=flags, role_reported="master", config_epoch="7")


def test_what_a_sentinel_says() -> None:
    view = _view(A, a_master(A), [a_server(B), a_server(C)])

    assert (view.master, view.epoch, view.known) == (A, 7, 2)
    assert view.up == view.whole == {A, B, C}


@pytest.mark.parametrize("flag", ["s_down", "o_down", "disconnected"])
def test_a_server_that_would_not_be_promoted_is_not_up(flag: str) -> None:
    view = _view(A, a_master(A, f"{flag},master"), [a_server(B), a_server(C, flags=f"{flag},slave")])

    assert view.up == view.whole == {B}


def test_a_replica_that_has_lost_its_master_is_up_and_not_whole() -> None:
    view = _view(A, a_master(A), [a_server(B), a_server(C, master_link_status="err")])

    assert view.up == {A, B, C}
    assert view.whole == {A, B}


def test_a_former_master_that_follows_nobody_is_whole() -> None:
    view = _view(A, a_master(A), [a_server(B), a_server(C, role_reported="master", master_link_status="err")])

    assert view.whole == {A, B, C}


def test_while_a_sentinel_fails_over_the_old_master_is_one_of_the_others() -> None:
    """It names the promoted one, and tells of the old one and its replicas."""
    view = _view(B, a_master(A, "master,failover_in_progress"), [a_server(B, flags="slave,promoted"), a_server(C)])

    assert (view.master, view.known) == (B, 1)
    assert view.up == view.whole == {A, C}


@pytest.fixture
def server() -> Sentinels:
    server = home_at("redis+sentinel://s1,s2,s3/main")
    assert isinstance(server, Sentinels)
    server._began_at -= sentinels.STILL_COUNTS_S  # what holds for who has just begun is told below
    return server


def says(*whole: Address, lost: tuple[Address, ...] = (), epoch: int = 7, known: int = 0) -> View:
    """A Sentinel that sees a master and its replicas up, and servers that have lost their master."""
    return View(whole[0], epoch, frozenset(whole + lost), frozenset(whole), known)


def seen(server: Sentinels, *views: View) -> int:
    """What counts after Sentinels have said this, now: all of them the same, or each something."""
    for sentinel, view in zip(server._sentinels, views * 3 if len(views) == 1 else views, strict=False):
        server._views[sentinel] = replace(view, at=time.monotonic())
        server._note(server._views[sentinel])
    return server.replicas


def later(server: Sentinels, s: float = sentinels.STILL_COUNTS_S) -> None:
    """Makes all that was seen older, while Sentinels were asked all the time."""
    server._holders = {address: at - s for address, at in server._holders.items()}
    server._linked = {replica: at - s for replica, at in server._linked.items()}


def test_replicas_that_are_up_and_linked_count(server: Sentinels) -> None:
    assert seen(server, says(A, B, C)) == 2


def test_a_replica_that_is_out_of_sight_for_a_moment_still_counts(server: Sentinels) -> None:
    assert (seen(server, says(A, B, C)), seen(server, says(A, B))) == (2, 2)


def test_a_replica_that_stays_away_does_not_count_any_more(server: Sentinels) -> None:
    seen(server, says(A, B, C))
    later(server)

    assert seen(server, says(A, B)) == 1


def test_a_replica_counts_while_one_sentinel_sees_it(server: Sentinels) -> None:
    seen(server, says(A, B, C))
    later(server)

    assert seen(server, says(A, B), says(A, B), says(A, B, C)) == 2


def test_a_replica_that_has_lost_its_master_counts(server: Sentinels) -> None:
    """Sentinels may promote it, and it lacks what the others get meanwhile."""
    seen(server, says(A, B, C))
    for _ in range(3):
        later(server, sentinels.STILL_COUNTS_S / 2)
        seen(server, says(A, B, lost=(C,)))

    assert server.replicas == 2


def test_a_replica_that_comes_back_counts_when_it_is_linked(server: Sentinels) -> None:
    """It lacks already what was promised while it was away."""
    seen(server, says(A, B))

    assert (seen(server, says(A, B, lost=(C,))), seen(server, says(A, B, C))) == (1, 2)


def test_who_has_just_begun_asks_for_all_that_sentinels_know_of(server: Sentinels) -> None:
    server._began_at = time.monotonic()
    at_first = seen(server, says(A, B, known=2))
    server._began_at -= sentinels.STILL_COUNTS_S

    assert (at_first, seen(server, says(A, B, known=2))) == (2, 1)


def test_who_was_stopped_asks_for_all_that_counted_before(server: Sentinels) -> None:
    """Its connection may be to a server that was the master when it stopped, and has one replica left."""
    seen(server, says(A, B, C, known=2))
    server._looked_at -= 40
    later(server, 40)
    on_waking = server.replicas

    assert (on_waking, seen(server, says(A, B, known=2))) == (2, 2)


def linked(*ports: bytes) -> list[object]:
    """What a master answers to ROLE."""
    return [b"master", 100, [[b"10.0.0.2", port, b"90"] for port in ports]]


def test_a_replica_that_only_the_master_knows_counts(server: Sentinels) -> None:
    seen(server, says(A, B))

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


# -- failovers


def test_a_replica_that_has_not_found_the_new_master_counts(server: Sentinels) -> None:
    seen(server, says(A, B, C))

    assert seen(server, says(B, lost=(A, C), epoch=8)) == 2


def test_a_former_master_counts_while_it_takes_itself_for_one(server: Sentinels) -> None:
    """If the new one and its replica are out of reach, it is promoted again, without what they have."""
    seen(server, says(A, B, C))
    seen(server, says(B, C, A, epoch=8))
    later(server)

    assert seen(server, says(B, C, A, epoch=8)) == 2


def test_a_former_master_that_is_down_does_not_count_any_more(server: Sentinels) -> None:
    seen(server, says(A, B, C))
    later(server)

    assert seen(server, says(B, C, epoch=8)) == 1


def test_what_was_linked_to_a_former_master_is_not_asked_of_the_new_one(server: Sentinels) -> None:
    seen(server, says(A, B, C))
    server.note_role(linked(b"6379", b"6380", b"6381"))

    assert (server.replicas, seen(server, says(B, C, A, epoch=8))) == (3, 2)


@pytest.mark.parametrize(
    ("views", "master"),
    [
        ([says(A, B, C), says(A, B, C), says(B, C, epoch=8)], B),
        ([says(A, B, C, epoch=8), says(B, C, epoch=8), says(B, C, epoch=8)], B),
        ([says(A, B, C, epoch=8), says(B, C, epoch=8), says(B, C)], None),
        ([says(A, B, C)], A),
    ],
    ids=["the latest failover", "two of one epoch", "nobody can tell", "all agree"],
)
def test_which_server_is_the_master(server: Sentinels, views: list[View], master: Address | None) -> None:
    seen(server, *views)

    assert server._named() == master


def test_two_masters_of_one_epoch_are_asked_for_each_other(server: Sentinels) -> None:
    """Neither can have it, so that nothing is promised until one of them follows the other."""
    seen(server, says(A, B, C))

    assert seen(server, says(A, C, lost=(B,), epoch=8), says(B, lost=(A, C), epoch=8)) == 3
