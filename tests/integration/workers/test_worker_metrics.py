"""What the workers tell Prometheus: of themselves, and one of them of the whole store."""

import aiohttp
import pytest

from relay.errors import ConfigurationError
from relay.store.store import Store
from tests.builders import BOB, a_message
from tests.conftest import MakeDesk
from tests.servers import free_port
from tests.unit.telemetry.test_metrics import samples
from workers.loop import Worker, go_round, run_once
from workers.main import measuring
from workers.metrics import WorkerMetrics, served


async def test_one_process_tells_how_messages_have_ended(make_desk: MakeDesk) -> None:
    desk = await make_desk()
    for name in ("waits", "waits-too", "is-cancelled"):
        await desk.send_one(a_message(name))
    await desk.store.lookup.cancel("acme/alice", BOB, "is-cancelled")
    metrics = WorkerMetrics("w-1", [])

    await run_once(desk.store, measuring(metrics))

    found = samples(metrics.text())
    assert found["relay_queue_depth,shard=0"] == 2
    assert found["relay_mailboxes,shard=0"] == 1
    assert found["relay_cancelled_total"] == 1
    assert (found["relay_dead_total"], found["relay_expired_total"], found["relay_revived_total"]) == (0, 0, 0)


async def test_only_who_has_the_lease_tells_of_the_store(store: Store) -> None:
    first, second = WorkerMetrics("w-1", []), WorkerMetrics("w-2", [])

    await run_once(store, measuring(first))
    store.instance = "another process"
    told = await run_once(store, measuring(second))

    assert told is None
    assert "relay_queue_depth,shard=0" in samples(first.text())
    assert "relay_queue_depth,shard=0" not in samples(second.text())


async def test_a_round_is_told_to_prometheus_and_noted_in_the_store(store: Store) -> None:
    async def step(*_: object) -> int:
        return 3

    metrics = WorkerMetrics("w-1", ["sweeper"])
    await go_round(store, Worker("sweeper", 300.0, step), metrics)

    found = samples(metrics.text())
    assert found["relay_worker_rounds_total,worker=sweeper"] == 1
    assert found["relay_worker_done_total,worker=sweeper"] == 3
    assert found["relay_worker_failures_total,worker=sweeper"] == 0
    (name, last), *others = (await store.workers.rounds()).items()
    assert (name, last.process, last.done, others) == ("sweeper", store.instance, 3, [])


@pytest.mark.parametrize(
    ("fixed_token", "expected"),
    [(None, [200, 401, 401, 401, 401, 200]), ("a fixed token", [401, 200, 401, 401, 401, 200])],
)
async def test_prometheus_reads_it_with_a_token_or_from_the_same_machine_if_there_is_none(
    make_desk: MakeDesk, fixed_token: str | None, expected: list[int]
) -> None:
    port = free_port()
    desk = await make_desk(metrics_port=port, metrics_token=fixed_token)
    metrics = WorkerMetrics("w-1", ["sweeper"])

    async with served(metrics, desk.store.settings), aiohttp.ClientSession() as http:
        url = f"http://127.0.0.1:{port}"
        answers = [
            (await http.get(f"{url}/{path}", headers=headers)).status
            for path, headers in (
                ("metrics", {}),
                ("metrics", {"Authorization": "Bearer a fixed token"}),
                ("metrics", {"Authorization": "Bearer another one"}),
                ("metrics", {"Host": "evil.example"}),
                ("metrics", {"X-Forwarded-For": "203.0.113.7"}),
                ("healthz", {}),
            )
        ]

    assert answers == expected


async def test_a_port_that_is_taken_is_named(make_desk: MakeDesk) -> None:
    port = free_port()
    desk = await make_desk(metrics_port=port)
    metrics = WorkerMetrics("w-1", [])

    async with served(metrics, desk.store.settings):
        with pytest.raises(ConfigurationError, match=f"RELAY_METRICS_PORT.*{port}"):
            async with served(metrics, desk.store.settings):
                pass
