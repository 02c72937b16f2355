"""The inbox where the relay cannot settle, repeats pile up, and payloads are odd."""

import asyncio
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from relay.client import Dead, Delivered, Message, NotAllowed, OutboxFailed, Refused, Retry, Security, payloads
from relay.client.connection.frames import Refusal, parse
from relay.client.inbox.repeats import Repeats
from relay.client.journal import MemoryJournal
from relay.testing import FakeRelay
from tests.agents import until


async def test_what_the_store_could_not_settle_is_given_back_and_acked_again() -> None:
    relay = FakeRelay()
    calls: list[Any] = []
    async with relay.agent("alice") as alice, relay.agent("bob") as bob:
        await bob.live()
        lost: list[str] = []
        holds = bob._engine.inbox.holds
        settling = holds._settling
        ack = settling.ack
        settling.ack = lambda entry: lost.append(entry) if not lost else ack(entry)  # type: ignore[method-assign]

        @bob.on()
        async def handle(message: Message[Any]) -> None:
            calls.append(message.payload)

        sent = await alice.send("bob", 1)
        await until(lambda: lost)
        holds.refused([Refusal("store_unavailable", entry=lost[0], retryable=True)])
        relay.clock.advance(seconds=2)

        assert isinstance(await asyncio.wait_for(sent.ended(), 2), Delivered)
    assert calls == [1]


def test_only_the_newest_repeats_are_remembered() -> None:
    repeats = Repeats(MemoryJournal(), window=100)

    for n in range(200):
        repeats.note(("alice", str(n)), None)

    assert ("alice", "199") in repeats
    assert ("alice", "0") not in repeats
    assert sum(("alice", str(n)) in repeats for n in range(200)) <= 110


def test_replies_are_remembered_up_to_a_limit_of_bytes() -> None:
    repeats = Repeats(MemoryJournal())

    for n in range(100):
        repeats.note(("alice", str(n)), b"x" * 2**20)

    assert all(("alice", str(n)) in repeats for n in range(100))
    assert repeats.reply_to(("alice", "99")) is not None
    assert repeats.reply_to(("alice", "0")) is None


async def test_a_plain_function_settles_and_answers_from_its_thread() -> None:
    relay = FakeRelay()
    async with relay.agent("alice") as alice, relay.agent("bob") as bob:

        @bob.on("parts")
        def tell(_: Message[Any]) -> Iterator[str]:
            yield "once"
            yield "upon a time"

        @bob.on("by hand")
        def answer(message: Message[Any]) -> None:
            message.part("thinking")
            message.reply("done")

        assert await alice.ask("bob", 1, type="parts", timeout=2) == ["once", "upon a time"]
        assert await alice.ask("bob", 1, type="by hand", timeout=2) == ["thinking", "done"]


async def test_plain_functions_that_wait_for_each_other_have_threads_enough() -> None:
    relay = FakeRelay()
    together = threading.Barrier(20)
    async with relay.agent("alice") as alice, relay.agent("bob") as bob:

        @bob.on(concurrency=20)
        def handle(_: Message[Any]) -> None:
            together.wait(5)

        await alice.send_many("bob", range(20))

        await asyncio.wait_for(alice.settled(), 5)


async def test_a_value_that_python_cannot_write_is_a_failure_of_its_handler_alone(tmp_path: Path) -> None:
    relay = FakeRelay()
    async with relay.agent("alice") as alice, relay.agent("bob", outbox=tmp_path / "bob.db") as bob:
        await bob.execute("CREATE TABLE sums (n INTEGER)")

        @bob.on()
        async def handle(message: Message[int]) -> None:
            message.also("INSERT INTO sums VALUES (?)", message.payload)

        ends = [await (await alice.send("bob", n, max_attempts=1)).ended() for n in (2**63, 1)]

        assert [type(end) for end in ends] == [Dead, Delivered]
        with pytest.raises(OutboxFailed, match="too large"):
            await bob.execute("INSERT INTO sums VALUES (?)", 2**63)
        assert await bob.execute("SELECT n FROM sums") == [(1,)]


@pytest.mark.parametrize("window", [5, 100])
async def test_a_thread_waits_for_its_message_that_failed_however_much_is_behind_it(window: int) -> None:
    relay = FakeRelay()
    order: list[int] = []
    async with relay.agent("alice") as alice, relay.agent("bob", window=window) as bob:
        await bob.live()

        @bob.on(concurrency=2, ordered_by="thread")
        async def handle(message: Message[int]) -> None:
            if message.payload == 2 and message.attempt < 3:
                raise Retry(after=20 * message.attempt)
            order.append(message.payload)

        await asyncio.sleep(0.01)
        await alice.send_many("bob", range(20), thread="t")
        for _ in range(10):
            await asyncio.sleep(0.01)
            relay.clock.advance(seconds=10)
        await asyncio.wait_for(alice.settled(), 2)

    assert order == list(range(20))


async def test_a_thread_waits_for_its_message_that_failed_through_a_reconnect() -> None:
    relay = FakeRelay()
    order: list[int] = []
    async with relay.agent("alice") as alice, relay.agent("bob", mode="exclusive") as bob:

        @bob.on(ordered_by="thread")
        async def handle(message: Message[int]) -> None:
            if message.payload == 0 and message.attempt == 1:
                raise Retry(after=60)
            order.append(message.payload)

        await alice.send_many("bob", range(3), thread="t")
        await alice.flush()
        await asyncio.sleep(0.01)
        relay.drop("bob")
        await bob.live()
        await asyncio.sleep(0.01)
        assert order == []

        relay.clock.advance(seconds=61)

        await asyncio.wait_for(alice.settled(), 2)
    assert order == [0, 1, 2]


async def test_a_thread_goes_on_when_its_message_died() -> None:
    relay = FakeRelay()
    order: list[int] = []
    async with relay.agent("alice") as alice, relay.agent("bob", mode="exclusive") as bob:

        @bob.on(ordered_by="thread")
        async def handle(message: Message[int]) -> None:
            if message.payload == 0:
                raise Retry(after=5)
            order.append(message.payload)

        dead = await alice.send("bob", 0, thread="t", max_attempts=1)
        await alice.send("bob", 1, thread="t")
        assert isinstance(await dead.ended(), Dead)

        relay.clock.advance(seconds=36)

        await asyncio.wait_for(alice.settled(), 2)
    assert order == [1]


async def test_who_may_only_send_is_told_so_when_it_waits_for_messages() -> None:
    relay = FakeRelay()
    cli = relay.agent("cli", token=relay.token("cli", "send"))
    async with cli:
        with pytest.raises(NotAllowed, match="lacks the scope receive"):
            await anext(aiter(cli.messages()))
        with pytest.raises(NotAllowed, match="lacks the scope receive"):
            cli.on()(print)
    with pytest.raises(NotAllowed, match="lacks the scope receive"):
        async with cli:
            pass


async def test_a_handler_is_named_with_parentheses_and_handles_at_least_one() -> None:
    bob = FakeRelay().agent("bob")

    with pytest.raises(TypeError, match="parentheses"):
        bob.on(lambda _: None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="1 or more"):
        bob.on(concurrency=0)


@pytest.mark.parametrize("data", [b"1e999", b"9" * 4_000, b'"\\ud83d\\ude00"', b"[" * 500 + b"]" * 500])
def test_any_payload_can_be_read(data: bytes) -> None:
    assert payloads.plain(data) is not None


@pytest.mark.parametrize("data", [b"9" * 5_000, b"[" * 100_000 + b"]" * 100_000])
def test_what_no_reader_takes_is_a_wrong_payload(data: bytes) -> None:
    with pytest.raises(payloads.WrongPayload):
        payloads.plain(data)


def test_what_cannot_be_json_is_said() -> None:
    with pytest.raises(TypeError, match="a payload must be JSON, not object"):
        payloads.encode(object())


@pytest.mark.parametrize(
    "payload", [msgspec.Raw(b'{"a":'), msgspec.Raw(b'"\xff"'), msgspec.Raw(b"[" * 3_000 + b"]" * 3_000)]
)
async def test_what_no_relay_could_read_is_said_before_it_is_sent(payload: msgspec.Raw) -> None:
    relay = FakeRelay()
    async with relay.agent("alice") as alice:
        with pytest.raises(ValueError, match="must be JSON"):
            await alice.send("bob", payload)
        assert alice.unsettled == 0


@pytest.mark.parametrize("span", [float("inf"), float("nan"), -1, timedelta(seconds=-1)])
async def test_a_span_that_is_none_is_said(span: float | timedelta) -> None:
    relay = FakeRelay()
    async with relay.agent("alice") as alice:
        for options in ({"ttl": span}, {"delay": span}):
            with pytest.raises(ValueError, match="not a span of time"):
                await alice.send("bob", 1, **options)  # type: ignore[arg-type]


def test_a_frame_that_cannot_be_read_does_not_end_an_agent(caplog: pytest.LogCaptureFixture) -> None:
    assert parse(b'{"op":"deliver","messages":[') is None
    assert "cannot be read" in caplog.text


async def test_a_message_that_calls_itself_a_reply_must_be_signed_as_well() -> None:
    relay = FakeRelay()
    strict = Security(requires_signatures=True)
    async with relay.agent("mallory") as mallory, relay.agent("bob", security=strict) as bob:
        handled: list[Any] = []

        @bob.on()
        async def handle(message: Message[Any]) -> None:
            handled.append(message.payload)

        end = await (await mallory.send("bob", 1, id="reply:1")).ended()

        assert "not signed" in str(end)
        assert handled == []


async def test_a_key_is_pinned_when_it_has_signed() -> None:
    relay = FakeRelay()
    async with relay.agent("alice") as alice, relay.agent("bob") as bob:

        @bob.on()
        async def handle(_: Message[Any]) -> None: ...

        forged = b'{"id":"m-1","to":"bob","signature":"AAAA","headers":{"relay-key":"AAAA"},"receipt":"all","payload":1'
        sent = alice._engine.outbox.put("bob", "m-1", forged, relay.clock.now() + 60, 0.0, is_request=False)

        assert "signature is wrong" in str(await sent.ended())
        assert bob._engine.guard._pins == {}


def test_frames_of_a_newer_relay_are_ignored() -> None:
    assert parse(b'{"op":"brand_new","n":1}') is None


async def test_a_request_over_http_tells_what_the_relay_refused() -> None:
    relay = FakeRelay()
    async with relay.agent("cli", token=relay.token("cli", "send")) as cli:
        with pytest.raises(Refused) as refused:
            await cli.ask("bob", "x" * 100_000)

    assert refused.value.code == "too_large"


async def test_a_message_of_a_type_that_nobody_handles_is_nacked() -> None:
    relay = FakeRelay()
    async with relay.agent("alice") as alice, relay.agent("bob") as bob:

        @bob.on("known")
        async def handle(_: Message[Any]) -> None: ...

        end = await (await alice.send("bob", 1, type="unknown", max_attempts=1)).ended()

    assert "no handler for the type 'unknown'" in str(end)


async def test_a_handler_of_one_type_leaves_others_to_a_loop() -> None:
    relay = FakeRelay()
    async with relay.agent("alice") as alice, relay.agent("bob") as bob:
        handled: list[Any] = []

        @bob.on("job")
        async def handle(message: Message[Any]) -> None:
            handled.append(message.payload)

        async def first() -> Any:
            message = await anext(aiter(bob.messages("note")))
            message.ack()
            return message.payload

        looping = asyncio.create_task(first())
        await asyncio.sleep(0)
        await alice.send("bob", 1, type="job")
        await alice.send("bob", 2, type="note")
        await alice.settled()

        assert (handled, await looping) == ([1], 2)
