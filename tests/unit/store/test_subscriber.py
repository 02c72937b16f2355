"""The subscriptions for wakes on a Cluster, as its slots move."""

import asyncio

from relay.store.keys import Keys
from relay.store.redis.servers.connect import home_at
from relay.store.redis.servers.slots import SLOTS
from relay.store.redis.servers.topology import Topology
from relay.store.redis.subscriber import WakeSubscriber

KEYS = Keys(1, 1_000, 1_000, "wakeups")


async def test_a_slot_that_moves_after_the_end_is_not_subscribed_to() -> None:
    """The instance hears of it while it carries out what is left."""
    cluster = home_at("redis+cluster://n1")
    assert isinstance(cluster, Topology)
    subscriber = WakeSubscriber(cluster, KEYS, "here", lambda *_: None, lambda *_: None, lambda: None)
    running = asyncio.create_task(subscriber.run())
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait((running,))

    cluster._owners = [("n1", 6379)] * SLOTS
    for changed in cluster.on_change:
        changed()

    assert subscriber._subscriptions == {}
