"""The redis-cli lines of docs/operations.md answer their questions on a real store."""

import asyncio
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders import ALICE, BOB, NOON_MS, a_message, open_desk
from tests.servers import RealServer
from workers.loop import go_round
from workers.main import workers
from workers.metrics import WorkerMetrics

pytestmark = pytest.mark.skipif(shutil.which("redis-cli") is None, reason="redis-cli is not here")

PAGE = (Path(__file__).parents[2] / "docs/operations.md").read_text()
LINES = re.findall(r"^redis-cli .*$", PAGE, re.MULTILINE)
MAY_BE_EMPTY = ("relay:workers", "outbox", "archived", "PUBSUB")  # of a store where all is well and nobody listens


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    with RealServer() as server:
        asyncio.run(prepare(server))
        yield server


async def prepare(server: RealServer) -> None:
    """acme/bob holds, fails, waits and is dead; acme/alice gets receipts."""
    async with open_desk(server, prefix="relay", shards=8) as desk:
        desk.clock.advance(time.time() - NOON_MS / 1_000)
        await desk.store.check()
        bob = await desk.join(BOB)
        await desk.send(*(a_message(f"m-{n}") for n in range(1, 9)))
        first, second, third, *_ = await desk.take(bob, room=5)
        await desk.ack(bob, first.entry)
        await desk.nack(bob, second.entry, retry=False)
        await desk.nack(bob, third.entry, delay_s=600)
        await desk.send(a_message("expires", ttl_s=1), sender=ALICE)
        desk.clock.advance(2)
        for name in ("overdue", "events"):
            await go_round(desk.store, workers(desk.store.settings)[name], WorkerMetrics("w-1", []))


def answer(server: RealServer, line: str) -> str:
    told = f'redis-cli() {{ command redis-cli -p {server.port} "$@"; }}; {line}'
    done = subprocess.run(["bash", "-c", told], capture_output=True, text=True, timeout=20, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("line", LINES)
def test_a_line_answers_its_question(server: RealServer, line: str) -> None:
    found = answer(server, line)

    assert "ERR" not in found
    assert "WRONGTYPE" not in found
    assert found or any(word in line for word in MAY_BE_EMPTY), line
