"""What the doctor concludes from facts that no test server can be brought to tell."""

import subprocess
from typing import Any

import pytest

from relay.doctor import data_checks, machine_checks
from relay.doctor.finding import Severity
from relay.doctor.server_checks import examine_server
from relay.settings import Settings
from relay.store.watching.checkup import ServerFacts

HEALTHY = {
    "redis_version": "7.2.4",
    "mem_allocator": "jemalloc-5.3.0",
    "maxmemory_policy": "noeviction",
    "used_memory": "1000000",
    "maxmemory": "0",
    "total_system_memory": "8000000000",
    "role": "master",
    "connected_slaves": "0",
    "connected_clients": "5",
}
CONFIG = {
    "appendonly": "yes",
    "appendfsync": "everysec",
    "no-appendfsync-on-rewrite": "no",
    "maxclients": "10000",
    "stream-node-max-bytes": "512",
    "lazyfree-lazy-expire": "yes",
    "tcp-keepalive": "300",
    "timeout": "0",
    "client-output-buffer-limit": "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
}


def found(info: dict[str, str] | None = None, config: dict[str, str] | None = None, skew_ms: int = 0) -> list[Any]:
    facts = ServerFacts("127.0.0.1:6379", HEALTHY | (info or {}), CONFIG | (config or {}), 0, skew_ms)
    return examine_server(facts, Settings())


def test_a_healthy_server_is_left_in_peace() -> None:
    assert found() == []


@pytest.mark.parametrize(
    ("info", "check", "severity"),
    [
        ({"redis_version": "6.2.14"}, "version", Severity.ERROR),
        (
            {"mem_allocator": "libc", "used_memory": "400000000", "used_memory_rss": "800000000"},
            "allocator",
            Severity.WARNING,
        ),
        ({"aof_last_write_status": "err"}, "disk", Severity.ERROR),
        ({"aof_last_bgrewrite_status": "err"}, "disk", Severity.ERROR),
        ({"rdb_last_bgsave_status": "err"}, "disk", Severity.ERROR),
        ({"maxmemory": "9000000000"}, "maxmemory", Severity.WARNING),
        ({"used_memory": "7000000000"}, "memory", Severity.WARNING),
        ({"used_memory": "950", "maxmemory": "1000"}, "memory", Severity.ERROR),
        ({"connected_clients": "9950"}, "clients", Severity.WARNING),
        (
            {
                "connected_slaves": "1",
                "min_slaves_good_slaves": "1",
                "slave0": "ip=10.0.0.2,port=6379,state=online,offset=1,lag=45",
            },
            "replication",
            Severity.WARNING,
        ),
    ],
)
def test_an_ill_server_is_recognised(info: dict[str, str], check: str, severity: Severity) -> None:
    assert [(finding.check, finding.severity) for finding in found(info)] == [(check, severity)]


@pytest.mark.parametrize(
    "info",
    [
        {"mem_allocator": "libc", "used_memory": "1000000", "used_memory_rss": "9000000"},
        {"mem_allocator": "libc", "used_memory": "3000000000", "used_memory_rss": "3400000000"},
        {"mem_allocator": "jemalloc-5.3.0", "used_memory": "400000000", "used_memory_rss": "800000000"},
    ],
    ids=["little is used", "little is wasted", "it is not the allocator"],
)
def test_an_allocator_that_has_cost_nothing_is_left_in_peace(info: dict[str, str]) -> None:
    assert found(info) == []


@pytest.mark.parametrize(("skew_ms", "words"), [(1_000, None), (-1_000, None), (1_001, "ahead of"), (-5_000, "behind")])
def test_a_second_of_skew_is_forgiven(skew_ms: int, words: str | None) -> None:
    told = [finding.what for finding in found(skew_ms=skew_ms)]

    assert len(told) == (words is not None)
    assert all(str(words) in what for what in told)


def test_a_small_buffer_for_replicas_matters_only_where_there_are_some() -> None:
    small = {"client-output-buffer-limit": "normal 0 0 0 slave 1048576 0 0 pubsub 0 0 0"}
    replica = {"connected_slaves": "1", "min_slaves_good_slaves": "1", "slave0": "ip=a,port=1,state=online,lag=0"}

    assert found(config=small) == []
    assert [finding.check for finding in found(replica, small)] == ["buffers"]


@pytest.mark.parametrize(
    ("most", "settings", "is_found"),
    [
        (1_024, Settings(), True),
        (20_000, Settings(), False),
        (20_000, Settings(max_connections=30_000), True),
        (1_024, Settings(max_connections=100, max_connections_per_address=100), False),
        (1_024, Settings(max_connections_per_address=0), False),
    ],
)
def test_too_few_open_files_for_what_is_configured_are_found(most: int, settings: Settings, is_found: bool) -> None:
    assert [finding.check for finding in machine_checks.open_files(settings, most)] == ["open_files"] * is_found


def test_the_finding_names_a_number_of_open_files_that_mends_it() -> None:
    settings = Settings(max_connections=30_000)
    finding = next(machine_checks.open_files(settings, 1_024))

    needed = int(finding.fix.rpartition("=")[2])

    assert list(machine_checks.open_files(settings, needed)) == []


def test_the_command_for_a_lost_id_does_nothing_else_whatever_the_message_is_called() -> None:
    finding = data_checks.lost_id("acme\tbob\talice\tx'; echo owned; '", "1-1", "relay:{s00}:ids")

    typed = subprocess.run(
        ["bash", "-c", f'redis-cli() {{ printf "%s|" "$@"; }}; {finding.fix}'],
        capture_output=True,
        text=True,
        check=True,
    )

    assert typed.stdout == "HDEL|relay:{s00}:ids|acme\tbob\talice\tx'; echo owned; '|"
