"""Processes of the torture: what they leave behind."""

from pathlib import Path

import pytest

from bench.torture import processes
from bench.torture.processes import Instance
from relay.cli.up.lifeline import Child


def test_a_killed_instance_leaves_no_shared_memory_of_its_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "SHARED_MEMORY", tmp_path)
    instance = Instance(0, 1, {}, tmp_path, tmp_path)
    instance._process = Child(["sleep", "60"])
    (tmp_path / f"faketime_shm_{instance.pid}").touch()
    (tmp_path / f"sem.faketime_sem_{instance.pid}").touch()

    instance.kill()

    assert not list(tmp_path.glob("*faketime*"))


def test_an_error_in_a_log_is_a_complaint_unless_it_is_foreseen(tmp_path: Path) -> None:
    instance = Instance(0, 1, {}, tmp_path, tmp_path)
    (tmp_path / "instance-0.log").write_text('{"level": "error", "event": "a"}\n{"level": "warning", "event": "b"}\n')

    assert list(instance.complaints()) == ['{"level": "error", "event": "a"}']
    assert list(instance.complaints({"a"})) == []
