"""pause: delivery stops for an agent or a tenant, everybody who is alive is told, and who did it is logged."""

from relay.store.agents.pauses import Pause, is_paused
from tests.builders import ALICE, BOB, NOON_MS, Desk
from tests.conftest import MakeDesk


async def test_an_agent_is_paused_once_and_resumed_once(desk: Desk) -> None:
    desk.is_alive("i1")
    ears = desk.ears("i1")

    pause = await desk.store.pauses.pause(BOB, "acme/root", "moving\thouse")
    desk.clock.advance(5)
    again = await desk.store.pauses.pause(BOB, "acme/eve", "other")
    lines = ears.heard()
    await desk.store.pauses.resume(BOB, "acme/eve")
    await desk.store.pauses.resume(BOB, "acme/eve")

    assert pause == again == Pause("acme/root", NOON_MS, "moving\thouse", "agent")
    assert lines == [f"paused\t{BOB}"]
    assert ears.heard() == [f"resumed\t{BOB}"]
    assert await desk.store.pauses.of(BOB) is None
    told = [(event.kind, event.who, event.to, event.reason) for event in desk.events("paused", "resumed")]
    assert told == [("paused", "acme/root", "bob", "moving\\thouse"), ("resumed", "acme/eve", "bob", "")]


async def test_a_tenant_is_paused_in_every_shard_and_told_of_once(make_desk: MakeDesk) -> None:
    desk = await make_desk(shards=4)

    pause = await desk.store.pauses.pause("acme", "acme/root")

    assert pause.scope == "tenant"
    assert [desk.redis.hkeys(desk.keys.paused(shard)) for shard in range(4)] == [["acme"]] * 4
    (event,) = desk.events("paused")
    assert (event.tenant, event.to, event.who) == ("acme", "", "acme/root")
    await desk.store.pauses.resume("acme", "acme/root")
    assert await desk.store.pauses.names() == set()


async def test_what_is_paused_is_listed_by_tenant(make_desk: MakeDesk) -> None:
    desk = await make_desk(shards=2)
    for name in (BOB, ALICE, "other/bob", "other"):
        await desk.store.pauses.pause(name, "acme/root")

    found = [await desk.store.pauses.agents_of("acme", shard) for shard in range(2)]

    assert {name for some in found for name in some} == {ALICE, BOB}
    assert await desk.store.pauses.names() == {ALICE, BOB, "other/bob", "other"}


async def test_a_pause_is_an_agents_or_its_tenants(desk: Desk) -> None:
    assert is_paused(BOB, {BOB})
    assert is_paused(BOB, {"acme"})
    assert not is_paused(BOB, {ALICE, "acm", "other"})
    assert not is_paused(BOB, set())
    assert desk.redis.exists(desk.keys.paused(0)) == 0
