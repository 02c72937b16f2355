"""A power cut takes everything that was not synced: what was accepted with `fsync` is there afterwards."""

import asyncio
import os
import shutil
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from tests.agents import until
from tests.builders import Desk, a_message, open_desk
from tests.servers import RealServer

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None, reason="needs Linux and a C compiler"
)

SOURCE = Path(__file__).parent / "fsynced.c"
SENDERS = 20
ENOUGH = 2_000  # accepted before the power goes


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("shim") / "fsynced.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", made, SOURCE, "-ldl"], check=True)
    return made


@pytest.fixture
def notes(shim: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where servers that are started from now on note what they have synced."""
    monkeypatch.setenv("LD_PRELOAD", str(shim))
    monkeypatch.setenv("FSYNC_LOG", str(tmp_path / "synced"))
    return tmp_path / "synced"


def cut_power(server: RealServer, notes: Path) -> int:
    """Ends the server, and takes from each of its files what it had not synced. Returns how many bytes that was."""
    server.kill()
    synced: dict[int, int] = {}
    for line in notes.read_text().splitlines():
        inode, size = map(int, line.split())
        synced[inode] = size
    lost = 0
    for path in server.folder.glob("appendonlydir/*.aof"):
        found = path.stat()
        kept = synced.get(found.st_ino, 0) if ".incr." in path.name else found.st_size
        lost += found.st_size - kept
        os.truncate(path, kept)
    return lost


async def send_for_ever(desk: Desk, number: int, accepted: set[str]) -> None:
    """Until the store is away. A cancellation alone may be lost: wait_for prefers an answer that comes with it."""
    for n in count():
        ids = [f"{number}-{n}-{k}" for k in range(3)]
        answers = await desk.send(*(a_message(id, to=f"acme/r{number}") for id in ids))
        stored = {id for id, answer in zip(ids, answers, strict=True) if answer.word == "stored"}
        accepted |= stored
        if len(stored) < len(ids):
            return


async def lost_by_a_power_cut(appendfsync: str, notes: Path) -> tuple[int, int]:
    """How many accepted messages, and how many bytes."""
    accepted: set[str] = set()
    with RealServer({"appendfsync": appendfsync}) as server:
        async with open_desk(server, "relay", shards=4, mailbox_max_messages=100_000) as desk:
            senders = [asyncio.create_task(send_for_ever(desk, n, accepted)) for n in range(SENDERS)]
            await until(lambda: len(accepted) > ENOUGH, within_s=60)
            lost_bytes = await asyncio.to_thread(cut_power, server, notes)
            for sender in senders:
                sender.cancel()
            await asyncio.wait(senders)
            server.start()
            with server.client() as client:
                found = set()
                for shard in range(4):
                    found |= {key.rpartition("\t")[2] for key in client.hkeys(desk.keys.ids(shard))}
    return len(accepted - found), lost_bytes


async def test_nothing_accepted_with_fsync_is_lost(notes: Path) -> None:
    lost, _ = await lost_by_a_power_cut("always", notes)

    assert lost == 0


async def test_without_fsync_such_a_cut_is_seen(notes: Path) -> None:
    lost, lost_bytes = await lost_by_a_power_cut("no", notes)

    assert lost_bytes > 0
    assert lost > 0
