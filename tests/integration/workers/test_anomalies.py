"""Anomalies: what a round of the observer finds in a real store, and how it is kept."""

import time
from typing import Any

import pytest

from relay.store.watching.anomalies import MOST_KEPT, SEVERITIES, Anomaly
from relay.store.watching.snapshots import ALL_TENANTS
from tests.agents import until
from tests.builders import ALICE, BOB, NOON_MS, Desk, a_message
from tests.conftest import MakeDesk
from workers.observer import Observer


class Rounds:
    """An observer that goes from round to round by the hand of the test."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._observer = Observer()

    async def go(self, after_s: float = 10) -> dict[str, Anomaly]:
        """One more round; what is known then, by kind."""
        self._desk.clock.advance(after_s)
        self._desk.is_alive(self._desk.store.instance)
        await self._observer.observe(self._desk.store, 0, self._desk.clock.now_ms())
        return {one.kind: one for one in await self._desk.store.anomalies.of("acme")}


async def of_store(desk: Desk, kind: str) -> list[Anomaly]:
    """What looks wrong with the store itself."""
    return [one for one in await desk.store.anomalies.of(ALL_TENANTS) if one.kind == kind]


def least_idle_s(desk: Desk) -> float:
    """For how long no holder of bob's mail has taken anything, as the server knows it."""
    lanes = [desk.redis.xinfo_consumers(desk.keys.box(BOB, priority), "agent") for priority in (0, 3)]
    return min(row["idle"] for rows in lanes for row in rows if row["pending"]) / 1_000


async def started(desk: Desk) -> Rounds:
    rounds = Rounds(desk)
    assert await rounds.go() == {}
    return rounds


async def test_an_ordinary_life_raises_nothing(desk: Desk) -> None:
    rounds = await started(desk)
    sent = await desk.send_one(a_message())
    bob = await desk.join(window=5)
    await desk.take(bob)
    await desk.ack(bob, sent.entry)

    assert await rounds.go() == {}
    assert await of_store(desk, "wake_path_broken") == []


async def test_failures_are_told_by_message(desk: Desk) -> None:
    rounds = await started(desk)
    sent = await desk.send_one(a_message(max_attempts=6))
    bob = await desk.join()
    for _ in range(5):
        await desk.take(bob)
        await desk.nack(bob, sent.entry, delay_s=0, reason="no")

    looping = await rounds.go()
    await desk.take(bob)
    await desk.nack(bob, sent.entry, delay_s=0, reason="no")
    dead = await rounds.go()

    assert looping["redelivery_loop"].evidence == {"deliveries": 5, "reason": "no"}
    assert looping["near_dead"].evidence == {"attempt": 6, "max_attempts": 6, "reason": "no"}
    assert "dead_lettered" not in looping
    assert dead["dead_lettered"].evidence == {"dead": 1, "reason": "no"}


async def test_many_failing_messages_of_one_agent_are_one_anomaly(desk: Desk) -> None:
    rounds = await started(desk)
    sent = await desk.send(*(a_message(f"m-{n}", max_attempts=2) for n in range(3)))
    bob = await desk.join()
    await desk.take(bob)
    await desk.nack(bob, *(one.entry for one in sent), delay_s=60, reason="no")

    found = await rounds.go()

    assert found["near_dead"].subject == BOB
    assert found["near_dead"].evidence["messages"] == 3
    assert found["near_dead"].count == 1


async def test_deliveries_that_are_an_hour_apart_are_no_loop(make_desk: MakeDesk) -> None:
    desk = await make_desk(anomaly_redeliveries=2, message_ttl_s=86_400)
    rounds = await started(desk)
    sent = await desk.send_one(a_message())
    bob = await desk.join()
    for _ in range(3):
        await desk.take(bob)
        await desk.release(bob, sent.entry)
        assert "redelivery_loop" not in await rounds.go(3_600)


async def test_a_lock_that_another_has_now_is_stolen(desk: Desk) -> None:
    rounds = await started(desk)
    await desk.send_one(a_message())
    first = await desk.join(mode="shared", ack_timeout_s=5)
    second = await desk.join(mode="shared")
    await desk.take(first)
    desk.clock.advance(6)
    await desk.overdue()
    await desk.take(second)

    stolen = (await rounds.go())["lock_stolen"]

    assert (stolen.session, stolen.evidence) == (second.name, {"before": first.name})


async def test_mailboxes_are_told_when_they_fill(make_desk: MakeDesk) -> None:
    desk = await make_desk(mailbox_max_messages=5)
    rounds = await started(desk)
    await desk.send(*(a_message(f"m-{n}") for n in range(4)))
    nearly = await rounds.go()
    await desk.send(*(a_message(f"m-{n}") for n in range(4, 7)))

    full = await rounds.go()

    assert nearly["mailbox_nearly_full"].evidence == {"depth": 4, "limit": 5}
    assert full["mailbox_full"].evidence == {"depth": 5, "limit": 5, "refused": 2}
    assert (await rounds.go(3_600))["stale"].evidence["why"] == "nobody connected"


async def test_a_session_that_settles_nothing_is_stuck(make_desk: MakeDesk) -> None:
    desk = await make_desk(anomaly_stuck_s=1, anomaly_long_processing_s=1)
    rounds = await started(desk)
    await desk.send(a_message("m-1"), a_message("m-2", priority=3))
    bob = await desk.join(window=2)
    await desk.take(bob)
    before = await rounds.go()
    await until(lambda: least_idle_s(desk) >= 1, "by the server's clock, which no test moves")

    after = await rounds.go()

    assert before == {}
    assert after["stuck_consumer"].session == bob.name
    assert after["stuck_consumer"].evidence["holds"] == 2
    assert after["long_processing"].session == bob.name


async def test_a_hold_that_nobody_ends_is_a_zombie(desk: Desk) -> None:
    rounds = await started(desk)
    await desk.send_one(a_message())
    bob = await desk.join(ack_timeout_s=5)
    (taken,) = await desk.take(bob)
    desk.redis.xclaim(desk.keys.box(BOB), "agent", bob.name, 0, [taken.entry], idle=30_000)

    found = await rounds.go(30)

    assert found["zombie"].entry == taken.entry
    assert found["zombie"].evidence == {"held_s": 30, "timeout_s": 5}


async def test_mail_that_goes_unread_is_told(make_desk: MakeDesk) -> None:
    desk = await make_desk(anomaly_cleared=2)
    rounds = await started(desk)
    await desk.send(a_message("m-1", ttl_s=5), a_message("m-2"), a_message("m-3"))
    desk.clock.advance(6)
    await desk.overdue()
    await desk.cancel("m-2")
    await desk.cancel("m-3")

    found = await rounds.go()

    assert found["expired_unread"].evidence == {"expired": 1}
    assert found["cleared"].evidence == {"cancelled": 2}


async def test_senders_are_told_apart_by_number_size_and_receipts(make_desk: MakeDesk) -> None:
    desk = await make_desk(anomaly_bulk_send=3, anomaly_receipts=1, max_payload_bytes=100)
    rounds = await started(desk)
    (sent, *_) = await desk.send(*(a_message(f"m-{n}", payload="x" * 90, receipt=True) for n in range(3)))
    bob = await desk.join()
    await desk.take(bob)
    await desk.ack(bob, sent.entry)
    assert await desk.receipts()

    found = await rounds.go()

    assert found["bulk_send"].evidence == {"sent": 3}
    assert found["large_payload"].evidence == {"bytes": 92, "limit": 100}
    assert found["receipts_piling_up"].agent == ALICE


async def test_a_session_that_takes_and_acks_everything_at_once_is_told(make_desk: MakeDesk) -> None:
    desk = await make_desk(anomaly_burst_take=3, anomaly_flash_acks=3, anomaly_flash_ms=1_000)
    rounds = await started(desk)
    sent = await desk.send(*(a_message(f"m-{n}") for n in range(3)))
    bob = await desk.join()
    await desk.take(bob)
    await desk.ack(bob, *(one.entry for one in sent))

    found = await rounds.go()

    assert found["burst_take"].evidence == {"taken": 3}
    assert found["flash"].evidence["acked"] == 3


async def test_a_tenant_that_fills_round_after_round_is_growing(make_desk: MakeDesk) -> None:
    desk = await make_desk(anomaly_growing_messages=5)
    rounds = await started(desk)
    found: dict[str, Any] = {}
    for n in range(6):
        assert "queue_growing" not in found
        await desk.send_one(a_message(f"m-{n}"))
        found = await rounds.go()

    assert found["queue_growing"].evidence == {"before": 1, "now": 6}


async def test_an_instance_that_does_not_answer_is_told_and_one_that_does_is_not(desk: Desk) -> None:
    rounds = await started(desk)
    ears = desk.ears(desk.store.instance)
    for _ in range(2):
        assert await of_store(desk, "wake_path_broken") == []
        await rounds.go()

    (broken,) = await of_store(desk, "wake_path_broken")
    token = ears.heard()[-1].removeprefix("probe\t")
    await desk.store.holds.answer_probe(token)
    await rounds.go()

    assert (broken.kind, broken.instance) == ("wake_path_broken", desk.store.instance)
    (still,) = await of_store(desk, "wake_path_broken")
    assert still.count == broken.count


async def test_a_clock_that_is_off_is_told(desk: Desk) -> None:
    observer = Observer()
    now_ms = int(time.time() * 1_000)
    await observer.observe(desk.store, 0, now_ms)
    await desk.send_one(a_message())  # by a clock that stands at another noon

    await observer.observe(desk.store, 0, now_ms + 10_000)

    (skew,) = await of_store(desk, "clock_skew")
    assert skew.evidence["behind_ms"] == pytest.approx(now_ms - NOON_MS, abs=60_000)


def an_anomaly(subject: str = BOB, kind: str = "stale") -> Anomaly:
    return Anomaly(kind=kind, severity="warning", subject=subject, text="it is", evidence={"n": 1}, agent=BOB)


async def test_what_is_seen_again_is_the_same_anomaly(desk: Desk) -> None:
    new = [await desk.store.anomalies.raise_all("acme", [an_anomaly()], NOON_MS + n * 10_000) for n in range(3)]

    (kept,) = await desk.store.anomalies.of("acme")
    assert [len(some) for some in new] == [1, 0, 0]
    assert (kept.first_ms, kept.last_ms, kept.count) == (NOON_MS, NOON_MS + 20_000, 3)
    assert (await desk.store.anomalies.totals())["stale"] == 1


async def test_of_what_was_seen_at_the_same_time_the_worst_comes_first(desk: Desk) -> None:
    info, warning, critical = (an_anomaly(severity) for severity in SEVERITIES)
    info.severity, critical.severity = "info", "critical"

    await desk.store.anomalies.raise_all("acme", [warning, critical, info], NOON_MS)

    assert [one.severity for one in await desk.store.anomalies.of("acme")] == ["critical", "warning", "info"]


async def test_what_was_over_and_is_back_counts_as_new(desk: Desk) -> None:
    await desk.store.anomalies.raise_all("acme", [an_anomaly()], NOON_MS)

    later_ms = NOON_MS + 60_001
    (kept,) = await desk.store.anomalies.of("acme")
    assert desk.store.anomalies.is_active(kept, later_ms - 1)
    assert not desk.store.anomalies.is_active(kept, later_ms)
    assert len(await desk.store.anomalies.raise_all("acme", [an_anomaly()], later_ms)) == 1
    assert (await desk.store.anomalies.totals())["stale"] == 2


async def test_the_oldest_go_when_there_are_too_many_or_they_are_old(make_desk: MakeDesk) -> None:
    desk = await make_desk(anomalies_keep_s=60)
    await desk.store.anomalies.raise_all("acme", [an_anomaly("first")], NOON_MS)
    many = [an_anomaly(f"a-{n}") for n in range(MOST_KEPT)]
    await desk.store.anomalies.raise_all("acme", many, NOON_MS + 1)
    assert {one.subject for one in await desk.store.anomalies.of("acme")} == {one.subject for one in many}

    await desk.store.anomalies.raise_all("acme", [an_anomaly("last")], NOON_MS + 60_002)

    assert [one.subject for one in await desk.store.anomalies.of("acme")] == ["last"]
