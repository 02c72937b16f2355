"""probe: an instance is told something on the way of wakes."""

from relay.store.redis.scripts import script
from tests.builders import Desk


async def probe(desk: Desk, instance: str, token: str) -> int:
    heard_by: int = await desk.store.pipeline.reply(desk.encoder.packet(script("probe"), 0, [instance, token]))
    return heard_by


async def test_an_instance_that_listens_hears_its_token(desk: Desk) -> None:
    ears, others = desk.ears("one"), desk.ears("other")

    assert await probe(desk, "one", "a-token") == 1
    assert ears.heard() == ["probe\ta-token"]
    assert others.heard() == []


async def test_nobody_hears_for_one_that_does_not_listen(desk: Desk) -> None:
    assert await probe(desk, "one", "a-token") == 0


async def test_it_leaves_nothing_behind(desk: Desk) -> None:
    before = set(desk.redis.scan_iter(f"{desk.keys.prefix}:*"))

    await probe(desk, "one", "a-token")

    assert set(desk.redis.scan_iter(f"{desk.keys.prefix}:*")) == before
