"""Processes that end with the one that started them."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from relay.cli.up import lifeline
from relay.cli.up.lifeline import Child
from tests.integration.cli.test_embedded import eventually, is_gone

ALWAYS_AWAY = "redis://127.0.0.1:9"

# What starts processes, and prints the pid of one that must end with it.
PARENTS = {
    "a child": """
        from relay.cli.up.lifeline import Child
        started = Child(["/bin/sh", "-c", "echo $$; exec sleep 600"])
    """,
    "a process of a test": f"""
        from tests.system.conftest import Instance
        started = Instance(redis_url="{ALWAYS_AWAY}")
        print(started.pid, flush=True)
    """,
    "relay up of a test": """
        import pathlib, sys
        from tests.up import Up
        started = Up(pathlib.Path(sys.argv[1], "up"))
        print(started.process.pid, flush=True)
    """,
    "a process of the torture": f"""
        import pathlib, sys
        from bench.torture.processes import Workers
        folder = pathlib.Path(sys.argv[1])
        started = Workers(1, {{"RELAY_REDIS_URL": "{ALWAYS_AWAY}"}}, folder, pathlib.Path.cwd())
        started.start()
        print(started.pid, flush=True)
    """,
    "a server of the benchmarks": """
        from bench.servers import RealServer
        started = RealServer()
        started.start()
        print(started.pid, flush=True)
    """,
}


@contextmanager
def a_parent(program: str, folder: Path) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """A process that runs the program and then waits, and the pid that it has printed."""
    lines = [line.removeprefix(" " * 8) for line in program.splitlines()]
    words = [sys.executable, "-c", "\n".join([*lines, "import time; time.sleep(600)"]), str(folder)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        yield parent, int(parent.stdout.readline())
        parent.kill()


@pytest.mark.parametrize("program", PARENTS.values(), ids=PARENTS)
def test_whoever_is_killed_takes_along_what_it_started(program: str, tmp_path: Path) -> None:
    with a_parent(program, tmp_path) as (parent, pid):
        assert not is_gone(pid)

        parent.kill()
        parent.wait()

        assert eventually(lambda: is_gone(pid))


def test_a_paused_child_ends_too(tmp_path: Path) -> None:
    with a_parent(PARENTS["a child"], tmp_path) as (parent, pid):
        os.kill(pid, signal.SIGSTOP)

        parent.kill()

        assert eventually(lambda: is_gone(pid))


def test_a_child_that_does_not_listen_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifeline.with_lifeline, "__defaults__", (1.0,))
    deaf = "trap '' TERM; echo deaf; while :; do sleep 0.1; done"
    with Child(["/bin/sh", "-c", deaf], stdout=subprocess.PIPE) as child:
        assert child.stdout.readline() == b"deaf\n"

        child.let_go()

        assert child.wait(20) == -signal.SIGKILL


@pytest.mark.parametrize("end", [Child.let_go, Child.terminate, Child.kill])
def test_nothing_is_left_of_a_child_that_has_ended(end: Callable[[Child], None]) -> None:
    child = Child(["sleep", "600"])

    end(child)
    child.wait(20)

    assert eventually(lambda: has_no_group(child.pid))


def has_no_group(pid: int) -> bool:
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_whoever_reads_its_output_does_not_wait_for_the_parent() -> None:
    child = Child(["echo", "said"], stdout=subprocess.PIPE)

    assert child.stdout.read() == b"said\n"

    child.wait()
    child.stdout.close()


def test_the_exit_code_is_the_commands_own() -> None:
    assert Child([sys.executable, "-c", "raise SystemExit(7)"]).wait(20) == 7
