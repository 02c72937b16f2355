"""Nothing that is said to an agent ends it, nor leaves it hanging: one agent, and thousands of things to say to it."""

import asyncio
import gc
import logging
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from relay.client import Agent, ClientError, Closed, Expired, Live, Message, Reject, Retry, SealingKey, Security
from relay.client.connection.credentials import claims
from relay.client.connection.link import Link
from relay.client.payloads import WrongPayload
from relay.testing import FakeRelay
from relay.testing.http import HttpAnswer
from tests.unit.client.mischief import (
    ALICES,
    ASKED,
    FORGED,
    SECRET,
    SENT,
    Answered,
    Cut,
    Input,
    Mail,
    Registered,
    Replied,
    Said,
    inputs,
)

EXAMPLES = max(200, settings.default.max_examples)  # `make soak` asks for more
RENEWED_EVERY = 10  # examples: bob knows what he has handled, and the fake relay keeps all that it has seen
TURNS = 30  # of the event loop: more than anything needs that waits for no time
HOURS = 40  # of the clock: more than the client ever rests


class Mallory(FakeRelay):
    """A relay that says what a test likes to bob, and what it should to others."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[Answered] = []
        self.registered: dict[str, Any] | None = None
        self.first: tuple[bytes, ...] = ()

    async def connect(self, url: str) -> Link:
        link: Any = await super().connect(url)
        hello = link._inbox.get_nowait()
        for text in (*self.first, hello):
            link.tell(text)
        self.first = ()
        return link  # type: ignore[no-any-return]

    async def call(self, method: str, url: str, path: str, token: str, body: Any = None) -> HttpAnswer:
        if claims(token).sub == "bob" and self.answers:
            found = self.answers.pop()
            return found.status, found.body
        if path.endswith("/agents/eve") and self.registered is not None:
            return 200, self.registered
        return await super().call(method, url, path, token, body)


class Stage:
    """Bob, to whom all is said, and carol, whom he always answers."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self.relay = Mallory()
        self._key = SealingKey.generate()
        security = Security(seal_with=self._key, pins={"seal:acme/alice": ALICES.public})
        self.bob = self.relay.agent("bob", security=security, mode="exclusive", on_gap=lambda _: None)
        self.carol = self.relay.agent("carol")
        self._mails = 0
        self._round = 0
        self._at_rest: set[Any] = set()

    async def open(self) -> None:
        _handle(self.bob)
        await self._stack.enter_async_context(self.bob)
        await self._stack.enter_async_context(self.carol)
        await self.carol.live()
        await self.bob.live()
        self._listening = asyncio.create_task(_listen(self.bob))
        await self.relay.until_subscribed("news")
        self._at_rest = set(self.bob._engine._tasks)

    async def play(self, given: list[Input]) -> None:
        """All of it is said while bob waits for replies, and then he answers carol as ever."""
        self._round += 1
        asking = await self._ask()
        for one in given:
            self._do(one)
            await _turns(2)
        await self._until_well()
        await self._check(asking)

    async def _ask(self) -> list["asyncio.Task[Any]"]:
        ids = iter(ASKED)
        self.bob._engine.requests.new_id = lambda: next(ids)  # type: ignore[method-assign]
        asking = [asyncio.create_task(self.bob.ask("alice", 1, timeout=60, sealed=sealed)) for sealed in (False, True)]
        asking.append(asyncio.create_task(_parts(self.bob)))
        await self.bob.send("alice", 1, id=SENT)
        await _turns(4)
        return asking

    def _do(self, one: Input) -> None:
        match one:
            case Said(text):
                self._say(text)
            case Cut(code, first):
                self.relay.first = first
                for session in list(self.relay.post.sessions["acme/bob"]):
                    session._link.end(code)
                self.relay.clock.advance(seconds=1)
            case Answered():
                self.relay.answers.append(one)
            case Registered(fields):
                self.relay.registered = fields
            case Replied():
                self._say(one.text(self._key.public, self._round))
            case Mail():
                self._mails += 1
                self.relay.post.send("acme/eve", one.message(f"e-{self._mails}", self._key.public))

    def _say(self, text: bytes) -> None:
        for session in self.relay.post.sessions["acme/bob"]:
            session._link.tell(text)

    async def _until_well(self) -> None:
        """Whatever is waited for by the clock comes now."""
        self.relay.answers.clear()
        self.relay.registered = None
        for _ in range(HOURS):
            await _turns(TURNS)
            if self._is_at_rest():
                return
            self.relay.clock.advance(minutes=10)
        waiting = self.relay.waiting("bob"), self.bob._engine.inbox.holds._held
        raise AssertionError(f"bob hangs: {self.bob.state}, {waiting}"[:1_000])

    def _is_at_rest(self) -> bool:
        engine = self.bob._engine
        sessions = self.relay.post.sessions["acme/bob"]
        is_live = isinstance(self.bob.state, Live) and len(sessions) == 1
        is_done = not engine.inbox.holds._held and not self.relay.post.mailbox("acme/bob").entries
        return is_live and is_done and engine._tasks == self._at_rest

    async def _check(self, asking: list["asyncio.Task[Any]"]) -> None:
        assert not self.bob._engine.over.done()
        assert await self.carol.ask("bob", 1, type="sum", timeout=5) == 2
        for task in asking:
            task.cancel()
        clear, sealed, parts = await asyncio.gather(*asking, return_exceptions=True)
        for answer in (clear, sealed, parts):
            _check_answer(answer)
        if not isinstance(sealed, BaseException):
            assert set(sealed if isinstance(sealed, list) else [sealed]) == {SECRET}
        assert self.bob._engine.requests._waiting == {}
        assert {sent.id for sent in self.bob._engine.outbox.all()} <= {SENT}
        for sent in self.bob._engine.outbox.all():
            await sent.cancel()
            self.bob._engine.outbox.end(sent, Expired())


def _check_answer(answer: Any) -> None:
    """What a reply may be: of who was asked. What may be raised instead: what the guide names."""
    if isinstance(answer, BaseException):
        assert isinstance(answer, ClientError | TimeoutError | WrongPayload | asyncio.CancelledError), repr(answer)
    assert FORGED not in str(answer)


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def _parts(bob: Agent) -> list[Any]:
    return [part async for part in bob.ask_stream("alice", 1, timeout=60)]


async def _listen(bob: Agent) -> None:
    with suppress(Closed):
        async for _ in bob.subscribe("news"):
            pass


def _handle(bob: Agent) -> None:
    @bob.on("sum")
    async def add(message: Message[int]) -> int:
        return message.payload + 1

    @bob.on()
    @bob.on("in order", ordered_by="thread")
    async def odd(message: Message[Any]) -> Any:
        match message.payload:
            case "retry" if message.attempt < 3:
                raise Retry
            case "reject":
                raise Reject
            case value:
                return value


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> Iterator["Stages"]:
    monkeypatch.setattr("relay.client.connection.calls.AWAY_PAUSE_S", 0.0)
    with Stages() as found:
        yield found


class Stages:
    """One stage for many examples, until one of them goes wrong."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._stage: Stage | None = None
        self._played = 0
        self._stack = AsyncExitStack()
        self._wrong: list[dict[str, Any]] = []

    def __enter__(self) -> "Stages":
        self._runner.get_loop().set_exception_handler(lambda _, context: self._wrong.append(context))
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._stack.aclose())
        gc.collect()
        self._runner.close()
        assert self._wrong == []

    def play(self, given: list[Input]) -> None:
        try:
            self._runner.run(self._play(given))
            assert self._wrong == []
        except BaseException:
            self._stage = None
            self._wrong.clear()
            raise

    async def _play(self, given: list[Input]) -> None:
        self._played += 1
        if self._stage is None or self._played % RENEWED_EVERY == 0:
            await self._stack.aclose()
            self._stage = Stage(self._stack)
            await self._stage.open()
        await self._stage.play(given)


class Tracebacks(logging.Handler):
    """What the client logs with a traceback."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.found.append(f"{record.getMessage()}: {record.exc_info[1]!r}")


@pytest.fixture
def tracebacks() -> Iterator[list[str]]:
    handler, logger = Tracebacks(), logging.getLogger("relay.client")
    logger.addHandler(handler)
    yield handler.found
    logger.removeHandler(handler)


def test_nothing_ends_an_agent_nor_leaves_it_hanging(stages: Stages, tracebacks: list[str]) -> None:
    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(inputs())
    def example(given: list[Input]) -> None:
        tracebacks.clear()
        stages.play(given)
        assert tracebacks == []

    example()
