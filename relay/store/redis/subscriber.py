"""Wakes: each instance hears which of its mailboxes have mail, and its subscribed topics."""

import asyncio
from collections.abc import Callable

from relay.store.keys import Keys
from relay.store.redis.servers.connect import Server
from relay.store.redis.servers.sentinels import Address
from relay.store.redis.servers.slots import slot_of
from relay.store.redis.servers.topology import Topology
from relay.store.redis.subscription import Subscription


class WakeSubscriber:
    """Listens forever. Wakes may be lost, so the listener checks the store itself after `resubscribed`.

    On a Cluster every node has its own subscription, to the channels in its slots, and none waits for another.
    """

    def __init__(
        self,
        home: Server | Topology,
        keys: Keys,
        instance: str,
        heard: Callable[[int, bytes], None],
        published: Callable[[str, bytes], None],
        resubscribed: Callable[[], None],
    ) -> None:
        self._home = home
        self._keys = keys
        self._wakes = {keys.wake_prefix(shard) + instance: shard for shard in range(keys.shards)}
        self._tenants: dict[str, str] = {}  # channel -> tenant
        self._heard = heard
        self._published = published
        self._resubscribed = resubscribed
        self._subscriptions: dict[Address | None, Subscription] = {}  # by node; a single server has no address
        self._running: dict[Address | None, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        if isinstance(home, Topology):
            home.on_change.append(self._spread)

    @property
    def heard_share(self) -> float:
        """How many of the shards are heard."""
        heard = sum(len(self._wakes.keys() & one.confirmed) for one in self._subscriptions.values())
        return heard / len(self._wakes)

    def follow(self, tenant: str) -> None:
        """Hears what is published in a tenant, from now on and after every reconnect."""
        channel = self._keys.topics(tenant)
        if channel not in self._tenants:
            self._tenants[channel] = tenant
            if subscription := self._subscriptions.get(self._node_of(channel)):
                subscription.add(channel)

    def unfollow(self, tenant: str) -> None:
        channel = self._keys.topics(tenant)
        subscription = self._subscriptions.get(self._node_of(channel))
        if self._tenants.pop(channel, None) and subscription:
            subscription.drop(channel)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as self._group:
            try:
                self._spread()
                await asyncio.Event().wait()  # for ever: a subscription that fails ends the others too
            finally:
                self._group = None  # slots may move for as long as others use the Cluster

    def _node_of(self, channel: str) -> Address | None:
        return self._home.owner(slot_of(channel)) if isinstance(self._home, Topology) else None

    def _spread(self) -> None:
        """Every channel is subscribed to where it is now. What is published meanwhile is looked for afterwards."""
        if self._group is None:
            return
        channels: dict[Address | None, set[str]] = {}
        for channel in (*self._wakes, *self._tenants):
            channels.setdefault(self._node_of(channel), set()).add(channel)
        if isinstance(self._home, Topology):
            channels.pop(None, None)  # nobody has those
        for node in self._subscriptions.keys() - channels.keys():
            del self._subscriptions[node]
            self._running.pop(node).cancel()
        for node, wanted in channels.items():
            self._subscription(node, self._group).want(wanted)

    def _subscription(self, node: Address | None, group: asyncio.TaskGroup) -> Subscription:
        subscription = self._subscriptions.get(node)
        if subscription is None:
            subscription = self._subscriptions[node] = self._make(node)
            self._running[node] = group.create_task(subscription.run(), name=f"wakes of {node}")
        return subscription

    def _make(self, node: Address | None) -> Subscription:
        home = self._home
        if isinstance(home, Topology):
            assert node is not None
            return Subscription(home.node(node), True, self._dispatch, self._resubscribed, home.look_again)
        return Subscription(home, False, self._dispatch, self._resubscribed, lambda: None)

    def _dispatch(self, channel: str, data: bytes) -> None:
        tenant = self._tenants.get(channel)
        if tenant is not None:
            self._published(tenant, data)
        elif channel in self._wakes:
            self._heard(self._wakes[channel], data)
