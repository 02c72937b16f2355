"""Questions to the relay, and topics."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, TypeVar

from relay.client import payloads
from relay.client.connection.frames import Error, Frame, Subscribed, TopicEvent, frame
from relay.client.connection.link import Output
from relay.client.errors import ClientError, NotAllowed

log = logging.getLogger(__name__)

MAX_EVENTS = 1_000  # of a subscriber that is slower than its topics; the oldest are dropped
AnswerFrame = TypeVar("AnswerFrame")


@dataclass(frozen=True, slots=True)
class Event:
    """What somebody published on a topic.

    >>> Event("news", "acme/alice", "hello").topic
    'news'
    """

    topic: str
    sender: str
    payload: Any


class Questions:
    """One question at a time. If the session ends before the answer, the question is asked again in the next.

    The relay answers in order. A caller that stops waiting leaves its place in the queue, so that its answer is not
    taken for the answer to the next question.
    """

    def __init__(self, output: Output) -> None:
        self._output = output
        self._one = asyncio.Lock()
        self._live = asyncio.Event()
        self._error: ClientError | None = None
        self._asked: deque[tuple[type[Any], asyncio.Future[Any]]] = deque()

    def connected(self) -> None:
        self._live.set()

    def disconnected(self) -> None:
        self._live.clear()
        while self._asked:
            _answer(self._asked.popleft()[1], None)

    def close(self, error: ClientError) -> None:
        self._error = error
        self._live.set()
        while self._asked:
            _answer(self._asked.popleft()[1], error)

    async def until_live(self) -> None:
        """Raises Closed when there will be no session any more."""
        while not self._output.is_live():
            await self._live.wait()
            if self._error is not None:
                raise self._error
            if not self._output.is_live():
                self._live.clear()

    async def ask(self, kind: type[AnswerFrame], op: str, **fields: Any) -> AnswerFrame:
        """Raises NotAllowed with what the relay said."""
        async with self._one:
            while True:
                await self.until_live()
                answer: asyncio.Future[AnswerFrame | None] = asyncio.get_running_loop().create_future()
                self._asked.append((kind, answer))
                self._output.say(frame(op, **fields))
                if (found := await answer) is not None:
                    return found

    def hear(self, said: Frame) -> None:
        if not self._asked:
            return
        if isinstance(said, Error) and said.entry is None:  # else it is about an entry that was settled
            _answer(self._asked.popleft()[1], NotAllowed(said.code, said.message))
        elif isinstance(said, self._asked[0][0]):
            _answer(self._asked.popleft()[1], said)


def _answer(waiting: "asyncio.Future[Any]", answer: Any) -> None:
    if waiting.done():
        return
    if isinstance(answer, ClientError):
        waiting.set_exception(answer)
    else:
        waiting.set_result(answer)


class _Subscriber:
    def __init__(self, topics: tuple[str, ...]) -> None:
        self.topics = topics
        self.events: deque[Event] = deque(maxlen=MAX_EVENTS)
        self.news = asyncio.Event()


class Topics:
    """Publications reach the subscribers that are connected at that time."""

    def __init__(self, output: Output, questions: Questions) -> None:
        self._output = output
        self._questions = questions
        self._subscribers: list[_Subscriber] = []
        self._error: ClientError | None = None

    async def publish(self, topic: str, payload: Any) -> None:
        await self._questions.until_live()
        self._output.say(frame("publish", topic=topic, payload=payloads.as_raw(payloads.encode(payload))))

    async def subscribe(self, *topics: str) -> AsyncIterator[Event]:
        subscriber = _Subscriber(topics)
        self._subscribers.append(subscriber)
        try:
            await self._questions.ask(Subscribed, "subscribe", topics=list(topics))
            while True:
                while subscriber.events:
                    yield subscriber.events.popleft()
                if self._error is not None:
                    raise self._error
                subscriber.news.clear()
                await subscriber.news.wait()
        finally:
            self._subscribers.remove(subscriber)
            gone = [topic for topic in topics if topic not in self._wanted()]
            if gone:
                self._output.say(frame("unsubscribe", topics=gone))

    def _wanted(self) -> set[str]:
        return {topic for one in self._subscribers for topic in one.topics}

    def connected(self) -> None:
        """Subscriptions are of a session: the new one hears of them."""
        if wanted := self._wanted():
            self._output.say(frame("subscribe", topics=sorted(wanted)))

    def hear(self, said: TopicEvent) -> None:
        try:
            event = Event(said.topic, said.sender, payloads.plain(bytes(said.payload)))
        except payloads.WrongPayload:
            log.warning("a publication of %s cannot be read, and is dropped", said.sender)
            return
        for subscriber in self._subscribers:
            if said.topic in subscriber.topics:
                subscriber.events.append(event)
                subscriber.news.set()

    def close(self, error: ClientError) -> None:
        self._error = error
        for subscriber in self._subscribers:
            subscriber.news.set()
