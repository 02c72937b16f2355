"""claim: an unknown agent's first key, unless something there may be somebody else's."""

from tests.agents import Key
from tests.builders import ALICE, BOB, Desk, a_message


async def test_the_first_key_is_the_agents(desk: Desk) -> None:
    first, second = Key().public, Key().public

    assert await desk.store.agents.is_key_of(first, BOB)
    assert await desk.store.agents.is_key_of(first, BOB)
    assert not await desk.store.agents.is_key_of(second, BOB)
    assert (await desk.store.agents.registration(BOB) or {})["key"] == first


async def test_an_agent_that_was_registered_without_a_key_is_not_to_be_had(desk: Desk) -> None:
    await desk.store.agents.register(BOB, mode="shared")

    assert not await desk.store.agents.is_key_of(Key().public, BOB)


async def test_an_address_that_has_mail_is_not_to_be_had(desk: Desk) -> None:
    await desk.send_one(a_message(priority=9))

    assert not await desk.store.agents.is_key_of(Key().public, BOB)
    assert await desk.store.agents.registration(BOB) is None


async def test_an_address_that_has_dead_letters_or_receipts_is_not_to_be_had(desk: Desk) -> None:
    sent = await desk.send_one(a_message(receipt=True))
    bob = await desk.join()
    await desk.take(bob)
    await desk.nack(bob, sent.entry, retry=False)
    await desk.receipts()
    await desk.leave(bob)
    desk.redis.hdel(desk.shard_key("agents"), BOB)

    assert not await desk.store.agents.is_key_of(Key().public, BOB)
    assert not await desk.store.agents.is_key_of(Key().public, ALICE)


async def test_an_address_that_somebody_serves_is_not_to_be_had(desk: Desk) -> None:
    await desk.join()
    desk.redis.hdel(desk.shard_key("agents"), BOB)

    assert not await desk.store.agents.is_key_of(Key().public, BOB)
