"""Rules: each is tried under, at and over its threshold."""

from collections.abc import Callable
from pathlib import Path

import pytest

from relay.store.watching.anomalies import KINDS, Anomaly
from relay.store.watching.holds import SessionHolds
from workers import rules
from workers.tallies import Notable, SessionTally

BOB = "acme/bob"
FAILED = Notable("nacked", 1, BOB, "acme/alice", "m-1", "1-0", 2, "i1.7", "no")

Rule = Callable[[float], Anomaly | None]


def holds(count: int = 1, idle_s: float = 0, oldest_s: float = 0) -> SessionHolds:
    return SessionHolds("i1.7", count, idle_s, "1-0", oldest_s)


def session(taken: float = 0, acked: float = 0, slowest_ms: int = 0, others: float = 0) -> SessionTally:
    return SessionTally("bob", taken, acked, slowest_ms, others)


# What each rule is asked with one number, its threshold, and how it is named.
RISING: list[tuple[str, Rule, float]] = [
    ("stuck_consumer", lambda s: rules.stuck_consumer(BOB, holds(5, idle_s=s), 5, 300), 300),
    ("stuck_consumer", lambda n: rules.stuck_consumer(BOB, holds(int(n), idle_s=300), 5, 300), 5),
    ("long_processing", lambda s: rules.long_processing(BOB, holds(oldest_s=s), 600), 600),
    ("zombie", lambda s: rules.zombie(BOB, "i1.7", "1-0", s, 30), 60),
    ("burst_take", lambda n: rules.burst_take("i1.7", session(taken=n), BOB, 100), 100),
    ("flash", lambda n: rules.flash("i1.7", session(acked=n), BOB, 1, 100), 100),
    ("redelivery_loop", lambda n: rules.redelivery_loop(FAILED, int(n), 5), 5),
    ("near_dead", lambda n: rules.near_dead(FAILED, int(n), 3), 3),
    ("dead_lettered", lambda n: rules.dead_lettered(BOB, n, "no"), 1),
    ("large_payload", lambda n: rules.large_payload(BOB, int(n), "m-1", 1_000, 0.9), 900),
    ("mailbox_full", lambda n: rules.mailbox_full(BOB, int(n), 10, 0), 10),
    ("mailbox_full", lambda n: rules.mailbox_full(BOB, 5, 10, n), 1),
    ("stale", lambda s: rules.stale(BOB, s, 1, "nobody connected", 3_600), 3_600),
    ("cleared", lambda n: rules.cleared(BOB, n, 100), 100),
    ("expired_unread", lambda n: rules.expired_unread(BOB, n), 1),
    ("bulk_send", lambda n: rules.bulk_send(BOB, n, 100), 100),
    ("receipts_piling_up", lambda n: rules.receipts_piling_up(BOB, int(n), 1_000), 1_000),
    ("queue_growing", lambda n: rules.queue_growing("acme", [0, 1, 2, 3, 4, int(n)], 100), 100),
    ("clock_skew", lambda ms: rules.clock_skew("i1", int(ms), 5_000), 5_000),
    ("clock_skew", lambda ms: rules.clock_skew("i1", -int(ms), 5_000), 5_000),
    ("wake_path_broken", lambda n: rules.wake_path_broken("i1", int(n), 2), 2),
]


def test_every_kind_is_explained_to_operators() -> None:
    page = (Path(__file__).parents[3] / "docs/operations.md").read_text()

    assert [kind for kind in KINDS if f"| `{kind}` |" not in page] == []


@pytest.mark.parametrize(("kind", "rule", "threshold"), RISING)
def test_a_rule_speaks_at_its_threshold_and_over_it_but_not_under(kind: str, rule: Rule, threshold: float) -> None:
    under, at, over = rule(threshold - 1), rule(threshold), rule(threshold + 1)

    assert under is None
    assert at is not None
    assert over is not None
    assert at.kind == over.kind == kind
    assert at.id == over.id
    assert at.text
    assert at.evidence


@pytest.mark.parametrize(
    ("depth", "kind"), [(7, None), (8, "mailbox_nearly_full"), (9, "mailbox_nearly_full"), (10, None)]
)
def test_a_mailbox_is_nearly_full_from_its_share_on_until_it_is_full(depth: int, kind: str | None) -> None:
    found = rules.mailbox_nearly_full(BOB, depth, 10, 0.8)

    assert (found and found.kind) == kind


@pytest.mark.parametrize(("slowest_ms", "others", "speaks"), [(0, 0, True), (1, 0, True), (2, 0, False), (0, 1, False)])
def test_only_a_session_that_acks_everything_in_no_time_is_a_flash(slowest_ms: int, others: int, speaks: bool) -> None:
    found = rules.flash("i1.7", session(acked=100, slowest_ms=slowest_ms, others=others), BOB, 1, 100)

    assert (found is not None) == speaks


def test_whoever_has_not_said_its_window_is_not_stuck() -> None:
    assert rules.stuck_consumer(BOB, holds(5, idle_s=1_000), None, 300) is None


def test_without_a_limit_of_attempts_nothing_is_near_dead() -> None:
    assert rules.near_dead(FAILED, 50, 0) is None


def test_a_lock_is_stolen_by_another_only() -> None:
    assert rules.lock_stolen(FAILED, "i1.7") is None
    stolen = rules.lock_stolen(FAILED, "i2.1")

    assert stolen is not None
    assert (stolen.kind, stolen.session, stolen.evidence) == ("lock_stolen", "i2.1", {"before": "i1.7"})


@pytest.mark.parametrize("depths", [[0, 100, 200, 300, 400], [0, 100, 100, 300, 400, 500], [0, 100, 90, 300, 400, 500]])
def test_a_queue_grows_only_if_it_did_so_six_times_in_a_row(depths: list[int]) -> None:
    assert rules.queue_growing("acme", depths, 100) is None


@pytest.mark.parametrize(("count", "text"), [(1, "1 message to acme/bob"), (2, "2 messages to acme/bob")])
def test_one_message_is_not_told_as_many(count: int, text: str) -> None:
    for anomaly in (rules.expired_unread("acme/bob", count), rules.dead_lettered("acme/bob", count, "no")):
        assert anomaly is not None
        assert anomaly.text.startswith(text)
