"""Control frames: what is not about the agent's own messages: topics, blocks, presence, threads."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, assert_never

from relay.core.instance.topics import Topics, publication
from relay.core.intake import not_granted, pay, rate_limited
from relay.core.session.agent_link import AgentLink
from relay.core.session.answer_buffer import AnswerBuffer
from relay.core.session.spending import Spending
from relay.errors import Forbidden, Malformed, RelayError
from relay.protocol.address import address
from relay.protocol.frames import Block, Presence, Publish, Subscribe, Sync, Unblock, Unsubscribe, frame
from relay.protocol.message import opaque
from relay.store.agents.rates import LIST, LOOK
from relay.store.store import Store

MAX_TOPICS = 1_000  # that one session follows
MAX_TOPICS_BYTES = 32_768  # and of all their names, for each answer repeats them
BYTES_PER_NAME = 160  # of an answer, about
MAX_UNANSWERED = 50  # of one session under way; the next one is rate_limited

Question = Subscribe | Unsubscribe | Block | Unblock | Presence | Sync


class ControlFrames:
    """Each question gets its own answer frame or an error. Questions do not wait for each other."""

    __slots__ = (
        *("_answers", "_link", "_one_sync", "_open", "_spawn"),
        *("_spending", "_store", "_subscriptions", "_topics"),
    )

    def __init__(
        self,
        link: AgentLink,
        store: Store,
        topics: Topics,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        answers: AnswerBuffer,
        spending: Spending,
    ) -> None:
        self._link = link
        self._spending = spending
        self._answers = answers
        self._store = store
        self._topics = topics
        self._spawn = spawn
        self._subscriptions: frozenset[str] = frozenset()
        self._open = 0  # how many are not answered yet
        self._one_sync = asyncio.Lock()  # the others wait: one may take many looks into a mailbox

    def handle(self, question: Question) -> None:
        """Raises RateLimited."""
        if self._open >= MAX_UNANSWERED:
            raise rate_limited(1_000)
        self._open += 1

        def spent(granted: int | None, retry_after_ms: int) -> None:
            if granted:
                self._spawn(self._answer(question, self._about_bytes(question)))
            else:
                self._open -= 1
                self._link.send_error(not_granted(granted, retry_after_ms))

        self._spending.spend(1, spent, price(question))

    def _about_bytes(self, question: Question) -> int:
        """About how long the answer will be."""
        match question:
            case Subscribe(topics=named):
                return BYTES_PER_NAME * (len(named) + len(self._subscriptions))
            case Unsubscribe():
                return BYTES_PER_NAME * len(self._subscriptions)
            case Block(agents=named) | Unblock(agents=named) | Presence(agents=named):
                return BYTES_PER_NAME * len(named)
            case Sync():
                return BYTES_PER_NAME
            case _:
                assert_never(question)

    def end(self) -> None:
        if self._subscriptions:
            self._topics.unsubscribe(self._link, list(self._subscriptions))
            self._subscriptions = frozenset()

    async def _answer(self, question: Question, about_bytes: int) -> None:
        self._link.output.reserve(about_bytes)
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
                    self._link.send(frame("presence", agents={name: info.as_fields() for name, info in seen.items()}))
                case Sync():
                    async with self._one_sync:
                        await self._sync(question)
                case _:
                    assert_never(question)
        except RelayError as error:
            self._link.send_error(error)
        finally:
            self._open -= 1
            self._link.output.reserve(-about_bytes)

    def _in_tenant(self, names: list[str]) -> list[str]:
        """Full addresses. Raises Malformed, or Forbidden for agents of another tenant."""
        tenant = self._link.tenant
        addresses = [address(name, tenant) for name in names]
        if any(agent.partition("/")[0] != tenant for agent in addresses):
            raise Forbidden("agents of another tenant")
        return addresses

    def _subscribe(self, add: set[str], remove: set[str]) -> None:
        self._link.identity.require("receive")
        wanted = (self._subscriptions | add) - remove
        if len(wanted) > MAX_TOPICS or sum(len(topic.encode()) for topic in wanted) > MAX_TOPICS_BYTES:
            raise Malformed(
                f"a session follows at most {MAX_TOPICS} topics, whose names have {MAX_TOPICS_BYTES} bytes",
                max=MAX_TOPICS,
            )
        if add:
            self._topics.subscribe(self._link, sorted(add))
        if remove:
            self._topics.unsubscribe(self._link, sorted(remove))
        self._subscriptions = wanted
        self._link.send(frame("subscribed", topics=sorted(self._subscriptions)))

    async def _change_blocks(self, add: list[str], remove: list[str]) -> None:
        self._link.identity.require("receive")
        blocked = await self._store.agents.change_blocks(
            self._link.address, self._in_tenant(add), self._in_tenant(remove)
        )
        self._link.send(frame("blocks", agents=blocked))

    async def _sync(self, sync: Sync) -> None:
        me, peer = self._link.address, self._in_tenant([sync.peer])[0]
        pay_further = partial(pay, self._store, me)
        sent, received = await asyncio.gather(
            self._store.agents.thread_state(me, peer, sync.thread, pay=pay_further),
            self._store.agents.thread_state(peer, me, sync.thread, for_sender=False, pay=pay_further),
        )
        self._link.send(
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
        """A publication gets no answer. Raises TooLarge or Forbidden."""
        self._link.identity.require("send")
        payload = opaque(publish.payload, self._store.settings.max_payload_bytes)

        def spent(granted: int | None, retry_after_ms: int) -> None:
            if granted:
                self._spawn(self._tell_topic(publication(publish.topic, self._link.address, payload)))
            else:
                self._answers.done(1)
                self._link.send_error(not_granted(granted, retry_after_ms))

        self._answers.expect(1)
        self._spending.spend(1, spent)

    async def _tell_topic(self, data: bytes) -> None:
        try:
            await self._store.topics.publish(self._link.tenant, data)
        except RelayError as error:
            self._link.send_error(error)
        finally:
            self._answers.done(1)


def price(question: Question) -> int:
    """The cost of a question; for presence, of each name in it."""
    return LOOK * max(1, len(question.agents)) if isinstance(question, Presence) else LIST
