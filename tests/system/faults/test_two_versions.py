"""Two releases of the relay on one store, as while a deploy goes on: they serve each other's agents."""

import re
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from relay.store.keys import SCHEMA
from tests.agents import message
from tests.servers import RealServer
from tests.system.conftest import Relay, Room

ROOT = Path(__file__).parents[3]
LATER = str(SCHEMA + 1)


def a_later_release(folder: Path) -> Path:
    """This relay with scripts of other names to the server, and of the next schema."""
    for package in ("relay", "workers", "bench"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    for script in (folder / "relay/store/scripts").rglob("*.lua"):
        script.write_text(script.read_text() + "\n-- of a later release\n")
    keys = folder / "relay/store/keys.py"
    keys.write_text(re.sub(r"^SCHEMA = \d+", f"SCHEMA = {LATER}", keys.read_text(), flags=re.MULTILINE))
    return folder


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Relay]:
    """The first instance and the workers are of this release, the second instance is of the next."""
    with ExitStack() as stack:
        relay = Relay(stack, stack.enter_context(RealServer()))
        relay.b = relay.instance(folder=a_later_release(tmp_path_factory.mktemp("later")))
        yield relay


@pytest.fixture
async def room(relay: Relay) -> AsyncIterator[Room]:
    with relay.server.client() as client:
        room = Room(relay, client)
        yield room
        await room.close()


async def test_agents_of_both_releases_write_to_each_other(room: Room) -> None:
    alice, bob = await room.agent("alice", room.a), await room.agent("bob", room.b)

    await alice.sent(message("m-1", room.address("bob")))
    await bob.sent(message("m-2", room.address("alice")))
    to_bob, to_alice = await bob.delivery(), await alice.delivery()
    await bob.ack(to_bob)
    await alice.ack(to_alice)

    assert (to_bob["id"], to_alice["id"]) == ("m-1", "m-2")
    assert [receipt["state"] for receipt in await alice.receipts(1) + await bob.receipts(1)] == ["delivered"] * 2


async def test_a_session_is_taken_over_from_one_release_by_the_other(room: Room) -> None:
    alice, old = await room.agent("alice", room.a), await room.agent("bob", room.a)
    await alice.sent(message("m-1", room.address("bob")))
    held = await old.delivery()

    new = await room.agent("bob", room.b)
    again = await new.delivery()
    await new.ack(again)

    assert await old.closed() == 4509
    assert again["entry"] == held["entry"]
    assert room.depth("bob") == 0


async def test_the_store_is_of_the_later_schema_and_both_are_ready(room: Room) -> None:
    assert room.redis.hget(room.keys.meta, "schema") == LATER
    await room.a.is_ready()
    await room.b.is_ready()
