"""An instance notices that no worker goes round."""

import pytest

from relay.core.instance.duties import Duties
from relay.store.worker_leases import Round
from relay.telemetry.metrics import Metrics
from tests.builders import Desk


@pytest.fixture
def duties(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Duties:
    """Of an instance that has reached the store for an hour."""
    monkeypatch.setattr(type(desk.store), "connected_s", lambda *_: 3_600.0)
    return Duties(desk.store, Metrics())


async def go_round(desk: Desk, worker: str = "overdue", every_s: float = 0.5) -> None:
    await desk.store.workers.note_round(worker, Round(desk.clock.now_ms(), "workers", 0, 1, every_s))


async def test_workers_that_go_round_are_there(desk: Desk, duties: Duties) -> None:
    await go_round(desk)
    await go_round(desk, "sweeper", 300.0)
    desk.clock.advance(10)

    await duties.look()

    assert duties.absent_s == 0
    assert await desk.store.anomalies.of("*") == []


async def test_workers_that_have_stopped_are_missed_and_their_return_is_noticed(
    desk: Desk, duties: Duties, caplog: pytest.LogCaptureFixture
) -> None:
    await go_round(desk)
    await go_round(desk, "sweeper", 300.0)
    desk.clock.advance(12)
    await duties.look()
    await duties.look()
    absent = duties.absent_s, duties._metrics.workers_absent
    await go_round(desk)
    await duties.look()

    assert absent == (pytest.approx(12, abs=0.5), True)
    assert (duties.absent_s, duties._metrics.workers_absent) == (0, False)
    assert [one.kind for one in await desk.store.anomalies.of("*")] == ["workers_absent"]
    assert [line.message for line in caplog.records if "workers" in line.message] == [
        "workers_absent",
        "workers_are_back",
    ]


async def test_workers_that_never_were_are_missed(duties: Duties) -> None:
    await duties.look()

    assert duties.absent_s == 3_600


async def test_a_store_that_was_away_does_not_count_against_the_workers(
    desk: Desk, duties: Duties, monkeypatch: pytest.MonkeyPatch
) -> None:
    await go_round(desk)
    desk.clock.advance(600)
    monkeypatch.setattr(type(desk.store), "connected_s", lambda *_: 5.0)

    await duties.look()

    assert duties.absent_s == 0
