"""Who else can read or lock the file of an outbox."""

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from relay.client import OutboxFailed
from relay.testing import FakeRelay

LOOK = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('SELECT * FROM relay_pins')"


@pytest.fixture(autouse=True)
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes_in(folder: Path) -> dict[str, int]:
    return {one.name: one.stat().st_mode & 0o777 for one in folder.iterdir()}


@pytest.mark.parametrize("left", [[], ["alice.db"], ["alice.db", "alice.db-wal", "alice.db-shm"]])
async def test_only_the_owner_reads_an_outbox(tmp_path: Path, left: list[str]) -> None:
    for name in left:
        (tmp_path / name).touch(0o666)

    async with FakeRelay().agent("alice", outbox=tmp_path / "alice.db") as alice:
        await alice.send("bob", 1)
        modes = modes_in(tmp_path)

    assert "alice.db-wal" in modes
    assert set(modes.values()) == {0o600}


async def test_only_the_owner_reads_an_outbox_behind_a_link(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (tmp_path / "alice.db").symlink_to(data / "real.db")

    async with FakeRelay().agent("alice", outbox=tmp_path / "alice.db"):
        assert set(modes_in(data).values()) == {0o600}


async def test_an_agent_that_was_refused_an_outbox_does_not_unlock_it(tmp_path: Path) -> None:
    path = tmp_path / "alice.db"
    relay = FakeRelay()
    async with relay.agent("alice", outbox=path):
        with pytest.raises(OutboxFailed, match="in use"):
            async with relay.agent("alice", outbox=path):
                pass

        other = await asyncio.create_subprocess_exec(sys.executable, "-c", LOOK, path, stderr=asyncio.subprocess.PIPE)
        _, said = await other.communicate()

    assert b"database is locked" in said
