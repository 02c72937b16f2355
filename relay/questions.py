"""Questions of an agent that are not about its own mail: topics, blocks, presence, threads."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from relay.answering import Answers
from relay.auth import Identity
from relay.errors import Forbidden, RelayError
from relay.protocol import (
    AnyFrame,
    Block,
    Presence,
    Publish,
    Subscribe,
    Sync,
    Unblock,
    Unsubscribe,
    address,
    frame,
    opaque,
)
from relay.sending import not_granted, rate_limited
from relay.store.store import Store
from relay.topics import Topics, publication

MAX_QUESTIONS = 50  # of one session under way; the next one is rate_limited


class Asker(Protocol):
    """Who asks: a session."""

    identity: Identity
    address: str
    tenant: str

    def send(self, text: bytes) -> None: ...


class Questions:
    """Each question is answered with a frame of its own, or with an error; the next one need not wait for it."""

    __slots__ = ("_answers", "_asker", "_open", "_spawn", "_store", "_subscriptions", "_topics")

    def __init__(
        self,
        asker: Asker,
        store: Store,
        topics: Topics,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        answers: Answers,
    ) -> None:
        self._asker = asker
        self._answers = answers
        self._store = store
        self._topics = topics
        self._spawn = spawn
        self._subscriptions: frozenset[str] = frozenset()
        self._open = 0  # how many are not answered yet

    def ask(self, question: AnyFrame) -> None:
        """Raises RateLimited."""
        if self._open >= MAX_QUESTIONS:
            raise rate_limited(1_000)
        self._open += 1
        self._spawn(self._answer(question))

    def end(self) -> None:
        if self._subscriptions:
            self._topics.unsubscribe(self._asker, list(self._subscriptions))

    async def _answer(self, question: AnyFrame) -> None:
        try:
            match question:
                case Subscribe(topics=topics):
                    self._subscribe(set(topics), set())
                case Unsubscribe(topics=topics):
                    self._subscribe(set(), set(topics))
                case Block(agents=agents):
                    await self._change_blocks(agents, [])
                case Unblock(agents=agents):
                    await self._change_blocks([], agents)
                case Presence(agents=agents):
                    seen = await self._store.presence.seen(self._in_tenant(agents))
                    self._asker.send(frame("presence", agents={name: one.as_fields() for name, one in seen.items()}))
                case Sync():
                    await self._sync(question)
        except RelayError as error:
            self._error(error)
        finally:
            self._open -= 1

    def _error(self, error: RelayError) -> None:
        self._asker.send(frame("error", **error.as_fields()))

    def _in_tenant(self, names: list[str]) -> list[str]:
        """Full addresses. Raises Malformed or Forbidden: another tenant's agents are nobody's business."""
        tenant = self._asker.tenant
        found = [address(name, tenant) for name in names]
        if any(one.partition("/")[0] != tenant for one in found):
            raise Forbidden("agents of another tenant")
        return found

    def _subscribe(self, add: set[str], remove: set[str]) -> None:
        self._asker.identity.require("receive")
        if add:
            self._topics.subscribe(self._asker, sorted(add))
        if remove:
            self._topics.unsubscribe(self._asker, sorted(remove))
        self._subscriptions = (self._subscriptions | add) - remove
        self._asker.send(frame("subscribed", topics=sorted(self._subscriptions)))

    async def _change_blocks(self, add: list[str], remove: list[str]) -> None:
        blocked = await self._store.agents.change_blocks(
            self._asker.address, self._in_tenant(add), self._in_tenant(remove)
        )
        self._asker.send(frame("blocks", agents=blocked))

    async def _sync(self, sync: Sync) -> None:
        me, peer = self._asker.address, self._in_tenant([sync.peer])[0]
        sent, received = await asyncio.gather(
            self._store.agents.thread_state(me, peer, sync.thread),
            self._store.agents.thread_state(peer, me, sync.thread),
        )
        self._asker.send(
            frame(
                "sync_state",
                peer=peer,
                thread=sync.thread,
                sent=sent.as_fields(),
                received=received.as_fields(),
                pending=sent.pending + received.pending,
            )
        )

    def publish(self, publish: Publish) -> None:
        """Nothing is answered when it went out: it is heard by whoever is there. Raises TooLarge or Forbidden."""
        self._asker.identity.require("send")
        payload = opaque(publish.payload, self._store.settings.max_payload_bytes)

        def spent(granted: int | None, retry_after_ms: int) -> None:
            if granted:
                self._spawn(self._tell_topic(publication(publish.topic, self._asker.address, payload)))
            else:
                self._answers.paid(1)
                self._error(not_granted(granted, retry_after_ms))

        self._answers.owe(1)
        self._store.rates.spend(self._asker.address, 1, spent)

    async def _tell_topic(self, data: bytes) -> None:
        try:
            await self._store.line.command("PUBLISH", self._store.keys.topics(self._asker.tenant), data)
        except RelayError as error:
            self._error(error)
        finally:
            self._answers.paid(1)
