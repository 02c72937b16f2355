"""The embedded server, with the real program and real kills."""

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

from relay.cli.up import embedded
from relay.cli.up.embedded import FolderInUse, embedded_server, load_or_create_secret, running_url, server_program
from relay.errors import ConfigurationError

HOLD_UNTIL_KILLED = """
import pathlib, sys
from relay.cli.up.embedded import embedded_server
with embedded_server(pathlib.Path(sys.argv[1]), "relay up") as server:
    print(server.pid, flush=True)
    sys.stdin.read()
"""


def eventually(happens: Callable[[], bool], within_s: float = 20) -> bool:
    deadline = time.monotonic() + within_s
    while not happens():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def a_holder(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HOLD_UNTIL_KILLED, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def server_pid(holder: subprocess.Popen[str]) -> int:
    assert holder.stdout is not None
    return int(holder.stdout.readline())


def a_program(folder: Path, name: str, script: str) -> Path:
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


def a_client(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, decode_responses=True)


def test_it_answers_on_a_private_socket_in_a_private_folder(tmp_path: Path) -> None:
    with embedded_server(tmp_path / "data", "relay up") as server, a_client(server.url) as client:
        assert client.ping()
        assert server.is_alive()
        assert server.program == server_program()
        assert server.url == f"unix://{tmp_path}/data/redis.sock"
        assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
        assert stat.S_IMODE((tmp_path / "data/redis.sock").stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("appendonly", "yes"),
        ("appendfsync", "always"),
        ("auto-aof-rewrite-min-size", str(256 * 2**20)),
        ("maxmemory-policy", "noeviction"),
        ("stream-node-max-bytes", "512"),
        ("lazyfree-lazy-expire", "yes"),
        ("save", ""),
        ("port", "0"),
        ("aof-load-truncated", "yes"),
        ("loglevel", "notice"),
    ],
)
def test_its_settings_are_in_force(tmp_path: Path, option: str, value: str) -> None:
    with embedded_server(tmp_path, "relay up") as server, a_client(server.url) as client:
        assert client.config_get(option) == {option: value}


def test_it_ends_with_its_context(tmp_path: Path) -> None:
    with embedded_server(tmp_path, "relay up") as server:
        pid = server.pid

    assert not server.is_alive()
    assert is_gone(pid)


def test_data_survives_a_restart(tmp_path: Path) -> None:
    with embedded_server(tmp_path, "relay up") as server, a_client(server.url) as client:
        client.set("kept", "yes")

    with embedded_server(tmp_path, "relay up") as server, a_client(server.url) as client:
        assert client.get("kept") == "yes"


def test_data_survives_a_kill_of_the_server(tmp_path: Path) -> None:
    with embedded_server(tmp_path, "relay up") as server:
        with a_client(server.url) as client:
            client.set("kept", "yes")
        os.kill(server.pid, signal.SIGKILL)
        assert eventually(lambda: not server.is_alive())

    with embedded_server(tmp_path, "relay up") as server, a_client(server.url) as client:
        assert client.get("kept") == "yes"


def test_a_torn_end_of_the_log_costs_only_the_torn_write(tmp_path: Path) -> None:
    with embedded_server(tmp_path, "relay up") as server, a_client(server.url) as client:
        client.set("kept", "yes")
    log = next(tmp_path.glob("appendonlydir/*.incr.aof"))
    with log.open("ab") as file:
        file.write(b"*3\r\n$3\r\nSET\r\n$4\r\nto")

    with embedded_server(tmp_path, "relay up") as server, a_client(server.url) as client:
        assert client.keys() == ["kept"]


def test_a_second_holder_is_told_who_holds_the_folder(tmp_path: Path) -> None:
    with embedded_server(tmp_path, "relay up --port 9000"):
        with pytest.raises(FolderInUse) as refused, embedded_server(tmp_path, "relay serve"):
            pass

        assert f"process {os.getpid()} (relay up --port 9000) since 20" in refused.value.message


def test_it_dies_with_a_killed_parent_and_frees_the_folder(tmp_path: Path) -> None:
    with a_holder(tmp_path) as holder:
        pid = server_pid(holder)
        assert not is_gone(pid)

        holder.kill()
        holder.wait()
        with embedded_server(tmp_path, "relay up") as server:
            assert eventually(lambda: is_gone(pid))
            assert server.pid != pid


def test_a_terminal_interrupt_does_not_reach_it(tmp_path: Path) -> None:
    with embedded_server(tmp_path, "relay up") as server:
        assert os.getpgid(server.pid) != os.getpgrp()
        assert os.getsid(server.pid) != os.getsid(0)


def test_others_find_a_running_server_by_its_folder(tmp_path: Path) -> None:
    assert running_url(tmp_path) is None

    with a_holder(tmp_path) as holder:
        server_pid(holder)
        assert running_url(tmp_path) == f"unix://{tmp_path}/redis.sock"
        holder.communicate()

    assert running_url(tmp_path) is None


def test_a_path_too_long_for_a_socket_falls_back_to_the_temporary_folder(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 20)

    with embedded_server(folder, "relay up") as server, a_client(server.url) as client:
        path = Path(server.url.removeprefix("unix://"))
        assert client.config_get("dir") == {"dir": str(folder)}
        assert not path.is_relative_to(folder)
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert running_url(folder) == server.url

    assert not path.parent.exists()


def test_a_server_that_cannot_start_reports_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = a_program(tmp_path, "broken-server", "echo cannot map the memory >&2; exit 1")
    monkeypatch.setattr(embedded, "server_program", lambda: str(broken))

    with (
        pytest.raises(ConfigurationError, match="cannot map the memory"),
        embedded_server(tmp_path / "data", "relay up"),
    ):
        pass


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(ConfigurationError, match="file/data cannot be the data folder"):
        load_or_create_secret(tmp_path / "file" / "data")


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    for name in ("token-secret", "relay.lock"):  # a folder in its place is refused even to root
        (tmp_path / name).mkdir()

    with pytest.raises(ConfigurationError, match=f"{tmp_path} cannot be the data folder"):
        load_or_create_secret(tmp_path)
    with (
        pytest.raises(ConfigurationError, match=f"{tmp_path} cannot be the data folder"),
        embedded_server(tmp_path, "relay up"),
    ):
        pass


@pytest.mark.parametrize(
    ("shown", "chosen"), [("Redis server v=7.0.15 sha=0", True), ("Redis server v=6.2.14 sha=0", False), ("?", False)]
)
def test_a_server_on_the_path_is_chosen_when_recent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shown: str, chosen: bool
) -> None:
    on_the_path = a_program(tmp_path, "redis-server", f"echo '{shown}'")
    monkeypatch.setenv("PATH", str(tmp_path))

    assert (server_program() == str(on_the_path)) is chosen


def test_no_server_at_all_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(embedded, "packaged_program", lambda: None)

    with pytest.raises(ConfigurationError, match="no redis-server or valkey-server"):
        server_program()


def test_a_secret_is_made_once_and_kept_private(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as racers:
        secrets = set(racers.map(lambda _: load_or_create_secret(tmp_path), range(8)))

    assert secrets == {load_or_create_secret(tmp_path)}
    assert len(load_or_create_secret(tmp_path)) >= 32
    assert [path.name for path in tmp_path.iterdir()] == ["token-secret"]
    assert stat.S_IMODE((tmp_path / "token-secret").stat().st_mode) == 0o600


def test_a_short_secret_is_refused(tmp_path: Path) -> None:
    (tmp_path / "token-secret").write_text("short\n")

    with pytest.raises(ConfigurationError, match="32 bytes or more"):
        load_or_create_secret(tmp_path)
