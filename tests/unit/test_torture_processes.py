"""Processes of the torture: what they leave behind."""

import subprocess
from pathlib import Path

import pytest

from bench.torture import processes
from bench.torture.processes import Instance


def test_a_killed_instance_leaves_no_shared_memory_of_its_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "SHARED_MEMORY", tmp_path)
    instance = Instance(0, 1, {}, tmp_path, tmp_path)
    instance._process = subprocess.Popen(["sleep", "60"], stdin=subprocess.PIPE)
    (tmp_path / f"faketime_shm_{instance.pid}").touch()
    (tmp_path / f"sem.faketime_sem_{instance.pid}").touch()

    instance.kill()

    assert not list(tmp_path.glob("*faketime*"))
