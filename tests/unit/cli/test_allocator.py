"""The packaged server gets a better allocator where the machine has one."""

from pathlib import Path

import pytest

from relay.cli.up.allocator import preloaded


def test_a_library_that_is_there_is_preloaded(tmp_path: Path) -> None:
    library = tmp_path / "x86_64-linux-gnu/libjemalloc.so.2"
    library.parent.mkdir()
    library.touch()

    assert preloaded([f"{tmp_path}/none/*.so", f"{tmp_path}/*/libjemalloc.so.2"]) == {"LD_PRELOAD": str(library)}


def test_what_is_preloaded_already_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "libjemalloc.so.2"
    library.touch()
    monkeypatch.setenv("LD_PRELOAD", "/own.so")

    assert preloaded([f"{tmp_path}/*.so.2"]) == {"LD_PRELOAD": f"/own.so:{library}"}


def test_without_one_nothing_changes(tmp_path: Path) -> None:
    assert preloaded([f"{tmp_path}/*/libjemalloc.so.2"]) == {}
