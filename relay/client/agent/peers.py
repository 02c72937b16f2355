"""An agent among others: topics, blocks, presence, and the state of threads."""

from collections.abc import AsyncIterator
from typing import Any

from relay.client.agent.needs_engine import NeedsEngine
from relay.client.connection.frames import Blocks, Presence, PresenceInfo, SyncState
from relay.client.connection.questions import Event


class Peers(NeedsEngine):
    """Questions about other agents. They need a session."""

    async def publish(self, topic: str, payload: Any) -> None:
        """Tells every agent of the tenant that listens to a topic right now. Nothing is stored.

        >>> await alice.publish("news", {"n": 1})
        """
        await self._engine.topics.publish(topic, payload)

    def subscribe(self, *topics: str) -> AsyncIterator[Event]:
        """Publications on these topics from now on.

        >>> async def listen():
        ...     async for event in bob.subscribe("news"):
        ...         return event
        >>> listening = asyncio.create_task(listen())
        >>> await relay.until_subscribed("news")
        >>> await alice.publish("news", "hello")
        >>> await listening
        Event(topic='news', sender='acme/alice', payload='hello')
        """
        return self._engine.topics.subscribe(*topics)

    async def block(self, *agents: str) -> list[str]:
        """Hears nothing of these agents any more, who cannot tell. Returns all that are blocked.

        >>> await bob.block("mallory")
        ['acme/mallory']
        """
        return (await self._engine.questions.ask(Blocks, "block", agents=list(agents))).agents

    async def unblock(self, *agents: str) -> list[str]:
        """Hears of these agents again. Returns all that are still blocked.

        >>> await bob.block("mallory", "eve")
        ['acme/eve', 'acme/mallory']
        >>> await bob.unblock("mallory")
        ['acme/eve']
        """
        return (await self._engine.questions.ask(Blocks, "unblock", agents=list(agents))).agents

    async def presence(self, *agents: str) -> dict[str, PresenceInfo]:
        """Who is online.

        >>> (await alice.presence("bob"))["acme/bob"].online
        True
        """
        return (await self._engine.questions.ask(Presence, "presence", agents=list(agents))).agents

    async def sync(self, peer: str, thread: str = "") -> SyncState:
        """The state of both sides of a thread, to find missing messages.

        >>> (await alice.sync("bob", "t")).sent.last_seq
        0
        """
        return await self._engine.questions.ask(SyncState, "sync", peer=peer, thread=thread)
