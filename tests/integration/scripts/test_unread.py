"""unread: which streams have anything."""

from relay.store.redis.resp import encode_command
from relay.store.redis.scripts import script
from tests.builders import ALICE, BOB, CAROL, Desk


async def unread(desk: Desk, *names: str) -> list[int]:
    packet = encode_command("EVALSHA", script("unread").sha, len(names), *names)
    found: list[int] = await desk.store.pipeline.reply(packet)
    return found


async def test_those_that_have_something_are_named_by_their_place(desk: Desk) -> None:
    alice, bob, carol = (desk.keys.receipts(address) for address in (ALICE, BOB, CAROL))
    for name in (bob, carol):
        desk.redis.xadd(name, {"count": 1})
    desk.redis.xtrim(bob, maxlen=0, approximate=False)

    assert await unread(desk, alice, bob, carol) == [3]
    assert await unread(desk, carol, carol) == [1, 2]
    assert await unread(desk, alice) == []
