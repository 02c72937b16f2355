"""What things cost in the server's memory is what docs/operations.md says."""

import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tests.builders import ALICE, BOB, Desk, a_message
from tests.servers import RealServer

PAGE = (Path(__file__).parents[2] / "docs/operations.md").read_text()
COUNT = 1_000  # of fewer, a server makes one compact text
PAYLOAD = "x" * 254  # 256 bytes as JSON
MORE, LESS = 1.15, 0.6  # servers differ: Valkey 9 keeps hashes in less than Redis 7

Measure = Callable[[Desk], Awaitable[float]]


@pytest.fixture(scope="module")
def redis_server() -> Iterator[RealServer]:
    """A server of their own: what other tests have left there would be freed while these measure."""
    with RealServer() as server:
        yield server


FREED = """
local function used() return tonumber(string.match(redis.call('INFO', 'memory'), 'used_memory:(%d+)')) end
redis.set_repl(redis.REPL_NONE)  -- what is told to the log would be counted too
local before = used()
assert(redis.call('DEL', unpack(KEYS)) == #KEYS)
return before - used()
"""


def usage(desk: Desk, *keys: str) -> int:
    """What the server gets back for these keys. MEMORY USAGE only estimates streams, and too high.

    In one script, so that no buffer of a connection or of the log grows or shrinks meanwhile.
    """
    desk.redis.config_set("lazyfree-lazy-user-del", "no")
    desk.redis.set("first", "")
    desk.redis.eval(FREED, 1, "first")  # what the server keeps of a script from its first run on is not counted
    return int(desk.redis.eval(FREED, len(keys), *keys))


def assert_close(measured: float, documented: int) -> None:
    assert LESS * documented <= measured <= MORE * documented


async def send(desk: Desk, count: int, to: str = BOB, sender: str = ALICE) -> None:
    for n in range(count):  # each in a call of its own, which costs most
        await desk.send_one(a_message(f"m-{n:04d}", to=to, payload=PAYLOAD), sender=sender)


async def settle_all(desk: Desk) -> None:
    await send(desk, COUNT)
    bob = await desk.join(BOB)
    bob.most_bytes = 2**24
    for row in await desk.take(bob, room=COUNT):
        await desk.ack(bob, row.entry)


NAMES = [f"acme/agent-{n:03d}" for n in range(COUNT)]


async def empty_mailbox(desk: Desk) -> float:
    for name in NAMES:
        await desk.send_one(a_message(to=name, payload=PAYLOAD))
        session = await desk.join(name)
        await desk.ack(session, (await desk.take_one(session)).entry)
    return usage(desk, *map(desk.keys.box, NAMES)) / COUNT


async def first_message(desk: Desk) -> float:
    for name in NAMES:
        await desk.send_one(a_message(to=name, payload=PAYLOAD))
    return usage(desk, *map(desk.keys.box, NAMES)) / COUNT


async def further_message(desk: Desk) -> float:
    await send(desk, COUNT)
    return usage(desk, desk.keys.box(BOB)) / COUNT


async def index(desk: Desk) -> float:
    await send(desk, COUNT)
    return usage(desk, desk.shard_key("ids")) / COUNT


async def ended(desk: Desk) -> float:
    await settle_all(desk)
    return usage(desk, desk.keys.ended(0, desk.clock.now_ms())[0]) / COUNT


async def events(desk: Desk) -> float:
    await settle_all(desk)
    return usage(desk, desk.keys.events(0)) / COUNT


async def receipt(desk: Desk) -> float:
    await settle_all(desk)
    await desk.store.pipeline.finish()
    return usage(desk, desk.keys.receipts(ALICE)) / COUNT


async def dead_letter(desk: Desk) -> float:
    await send(desk, COUNT)
    bob = await desk.join(BOB)
    await desk.nack(bob, *(row.entry for row in await desk.take(bob, room=COUNT)), retry=False)
    return usage(desk, desk.keys.dead(BOB)) / COUNT


async def held(desk: Desk) -> float:
    await send(desk, COUNT)
    await send(desk, COUNT, to=ALICE, sender=BOB)
    bob = await desk.join(BOB)
    bob.most_bytes = 2**24
    assert len(await desk.take(bob, room=COUNT)) == COUNT
    with_holds = usage(desk, desk.keys.box(BOB))
    return (with_holds - usage(desk, desk.keys.box(ALICE))) / COUNT


MEASURES: dict[str, Measure] = {
    "a mailbox that is empty and served": empty_mailbox,
    "a mailbox with one message": first_message,
    "each further message": further_message,
    "while it is held, besides": held,
    "its id in the index": index,
    "its events, for `RELAY_EVENTS_KEEP_S`": events,
    "its id after the end, for `RELAY_DEDUP_WINDOW_S`": ended,
    "a receipt that waits for its sender": receipt,
    "a dead letter": dead_letter,
}


def documented() -> dict[str, int]:
    section = PAGE[PAGE.index("## What things cost in the store") : PAGE.index("## Logs")]
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| ([\d,]+) \|$", section, re.MULTILINE)
    return {name: int(number.replace(",", "")) for name, number in rows}


def test_every_cost_is_measured() -> None:
    assert documented().keys() == MEASURES.keys()


@pytest.mark.parametrize("name", MEASURES)
async def test_a_cost_is_what_the_page_says(desk: Desk, name: str) -> None:
    assert_close(await MEASURES[name](desk), documented()[name])
