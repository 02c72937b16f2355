"""What agents can rely on: the same suite on the fake relay and on the real one."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from relay.client import (
    Agent,
    Cancelled,
    CannotOpen,
    Closed,
    Dead,
    Delivered,
    Died,
    Expired,
    Key,
    KeyChanged,
    Message,
    OutboxFull,
    QueueFull,
    Refused,
    Reject,
    Replaced,
    ReplacedBy,
    Retry,
    SealingKey,
    Security,
)
from tests.agents import until
from tests.system.client.conftest import World

WITHIN_S = 15.0


def handled_by(agent: Agent, **options: Any) -> list[Message[Any]]:
    """What comes to an agent that handles everything."""
    got: list[Message[Any]] = []

    @agent.on(**options)
    async def handle(message: Message[Any]) -> None:
        got.append(message)

    return got


# -- sending


async def test_a_sender_learns_that_its_message_was_handled(world: World) -> None:
    alice, bob = await world.agent("alice"), await world.agent("bob")
    got = handled_by(bob)

    sent = await alice.send("bob", {"n": 1}, type="note", thread="t", headers={"a": "b"})

    assert await sent.accepted() in ("memory", "fsync")
    assert await sent.ended() == Delivered(attempt=1, was_stored=False)
    (message,) = got
    assert (message.payload, message.type, message.thread, message.seq) == ({"n": 1}, "note", "t", 1)
    assert (message.sender, message.headers, message.attempt) == (alice.address, {"a": "b"}, 1)
    assert alice.unsettled == 0


async def test_an_absent_recipient_finds_everything_in_order(world: World) -> None:
    alice = await world.agent("alice")
    sents = await alice.send_many("bob", range(30))
    await alice.flush()

    bob = await world.agent("bob")
    got = handled_by(bob)

    assert [await sent.ended() for sent in sents] == [Delivered(was_stored=True)] * 30
    assert [message.payload for message in got] == list(range(30))
    assert all(message.was_stored for message in got)


async def test_what_is_sent_while_the_relay_is_away_goes_out_when_it_is_back(world: World) -> None:
    alice, bob = await world.agent("alice"), await world.agent("bob")
    got = handled_by(bob)

    world.cut(alice)
    sents = [await alice.send("bob", n) for n in range(5)]

    assert [type(await sent.ended()) for sent in sents] == [Delivered] * 5
    assert [message.payload for message in got] == list(range(5))


async def test_the_same_recipient_and_id_is_the_same_message(world: World) -> None:
    alice, bob = await world.agent("alice"), await world.agent("bob")
    got = handled_by(bob)

    first = await alice.send("bob", 1, id="m-1")
    again = await alice.send("bob", 2, id="m-1")
    await first.ended()
    late = await alice.send("bob", 3, id="m-1")

    assert again is first
    async with asyncio.timeout(WITHIN_S):
        assert isinstance(await late.ended(), Delivered)
    assert [message.payload for message in got] == [1]


async def test_two_recipients_may_have_messages_of_the_same_id(world: World) -> None:
    alice = await world.agent("alice")

    sents = [await alice.send(to, to, id="m-1") for to in ("bob", "carol")]
    for sent in sents:
        await sent.accepted()

    assert world.depth("bob") == world.depth("carol") == 1


@pytest.mark.parametrize(
    ("to", "payload", "code"),
    [("bob", "x" * 70_000, "too_large"), ("other/bob", 1, "forbidden"), ("not an address", 1, "malformed")],
)
async def test_what_the_relay_never_takes_is_refused(world: World, to: str, payload: Any, code: str) -> None:
    alice = await world.agent("alice")

    sent = await alice.send(to, payload)
    after = await alice.send("bob", "goes on")

    with pytest.raises(Refused) as refused:
        await sent.accepted()
    assert refused.value.code == code
    with pytest.raises(Refused):
        await sent.ended()
    assert await after.accepted()
    assert alice.unsettled == 1


async def test_a_message_that_nobody_takes_in_time_expires(world: World) -> None:
    alice = await world.agent("alice")

    sent = await alice.send("bob", "lunch?", ttl=0.3)
    await sent.accepted()
    await world.pass_time(0.4)

    async with asyncio.timeout(WITHIN_S):
        assert await sent.ended() == Expired()
    assert world.depth("bob") == 0


async def test_a_delayed_message_comes_later(world: World) -> None:
    alice, bob = await world.agent("alice"), await world.agent("bob")
    got = handled_by(bob)

    sent = await alice.send("bob", "later", delay=timedelta(seconds=0.4))
    await sent.accepted()
    await (await alice.send("bob", "now")).ended()
    await world.pass_time(0.5)
    await sent.ended()

    assert [message.payload for message in got] == ["now", "later"]


async def test_higher_priority_comes_first(world: World) -> None:
    alice = await world.agent("alice")
    await alice.send("bob", "low")
    await alice.send("bob", "high", priority=9)
    await alice.flush()

    got = handled_by(await world.agent("bob"))
    await alice.settled()

    assert [message.payload for message in got] == ["high", "low"]


async def test_a_message_can_be_taken_back_unless_it_has_ended(world: World) -> None:
    alice = await world.agent("alice")
    sent = await alice.send("bob", 1)
    await sent.accepted()

    assert await sent.cancel()
    assert await sent.ended() == Cancelled()
    assert not await sent.cancel()
    assert world.depth("bob") == 0


async def test_a_full_mailbox_holds_back_what_follows_and_order_stays(world: World) -> None:
    alice = await world.agent("alice")
    sents = await alice.send_many("bob", range(1_003))
    await sents[999].accepted()
    with pytest.raises(QueueFull) as full:
        await alice.ask("bob", "room?", timeout=5)
    got = handled_by(await world.agent("bob"))
    await sents[999].ended()

    world.cut(alice)  # what waits for the recipient is tried again at once after a reconnect

    async with asyncio.timeout(WITHIN_S):
        await alice.settled()
    assert full.value.retry_after > 0
    assert [message.payload for message in got] == list(range(1_003))


async def test_a_full_outbox_is_said_or_waited_for(world: World) -> None:
    hasty = await world.agent("hasty", outbox_limit=2, when_full="raise")
    patient = await world.agent("patient", outbox_limit=2)
    for agent in (hasty, patient):
        await agent.send_many("bob", [1, 2])

    with pytest.raises(OutboxFull):
        await hasty.send("bob", 3)
    waiting = asyncio.create_task(patient.send("bob", 3))
    got = handled_by(await world.agent("bob"))

    await waiting
    await patient.settled()
    assert [message.payload for message in got if message.sender == patient.address] == [1, 2, 3]


# -- handling


async def test_a_handler_that_fails_is_called_again_and_one_that_rejects_is_not(world: World) -> None:
    alice, bob = await world.agent("alice"), await world.agent("bob")
    attempts: list[tuple[str, int]] = []

    @bob.on("job.*")
    async def job(message: Message[str]) -> None:
        attempts.append((message.payload, message.attempt))
        if message.payload == "never":
            raise Reject("no such printer")
        if message.attempt == 1:
            raise Retry(after=0)

    again = await alice.send("bob", "again", type="job.a")
    never = await alice.send("bob", "never", type="job.b")

    assert await again.ended() == Delivered(attempt=2)
    assert await never.ended() == Dead(reason="no such printer")
    assert sorted(attempts) == [("again", 1), ("again", 2), ("never", 1)]


async def test_an_exception_is_named_in_the_dead_letter(world: World) -> None:
    alice, bob = await world.agent("alice"), await world.agent("bob")

    @bob.on()
    async def handle(_: Message[Any]) -> None:
        raise ZeroDivisionError("by nought")

    sent = await alice.send("bob", 1, max_attempts=1)

    end = await sent.ended()
    assert isinstance(end, Dead)
    assert "by nought" in end.reason


async def test_messages_are_told_apart_by_their_type(world: World) -> None:
    alice, bob = await world.agent("alice"), await world.agent("bob")
    jobs, rest = handled_by(bob, type="job.*"), handled_by(bob)

    for kind in ("job.a", "note", None):
        await alice.send("bob", kind, type=kind)
    await alice.settled()

    assert [message.payload for message in jobs] == ["job.a"]
    assert [message.payload for message in rest] == ["note", None]


class Job(msgspec.Struct):
    n: int


class Model(BaseModel):
    n: int


async def test_payloads_are_read_as_the_type_that_a_handler_names(world: World) -> None:
    alice, bob = await world.agent("alice"), await world.agent("bob")
    got: list[Any] = []

    @bob.on("struct")
    async def struct(message: Message[Job]) -> None:
        got.append(message.payload)

    @bob.on("model")
    async def model(message: Message[Model]) -> None:
        got.append(message.payload)

    await (await alice.send("bob", Job(1), type="struct")).ended()
    await (await alice.send("bob", Model(n=2), type="model")).ended()
    wrong = await alice.send("bob", {"n": "three"}, type="struct")

    assert got == [Job(1), Model(n=2)]
    end = await wrong.ended()
    assert isinstance(end, Dead)
    assert end.reason.startswith("payload:")


async def test_concurrency_is_bounded_and_threads_keep_their_order(world: World) -> None:
    alice, bob = await world.agent("alice"), await world.agent("bob")
    order: dict[str, list[int]] = {}
    running: set[str] = set()
    most = 0

    @bob.on(concurrency=4, ordered_by="thread")
    async def handle(message: Message[int]) -> None:
        nonlocal most
        assert message.thread is not None
        assert message.thread not in running
        running.add(message.thread)
        most = max(most, len(running))
        await asyncio.sleep(0.001 * (message.payload % 3))
        order.setdefault(message.thread, []).append(message.payload)
        running.discard(message.thread)

    for n in range(40):
        await alice.send("bob", n, thread=f"t{n % 8}")
    await alice.settled()

    assert order == {f"t{k}": list(range(k, 40, 8)) for k in range(8)}
    assert most == 4


async def test_a_thread_waits_for_its_message_that_failed(world: World) -> None:
    alice, bob = await world.agent("alice"), await world.agent("bob")
    order: list[int] = []

    @bob.on(concurrency=4, ordered_by="thread")
    async def handle(message: Message[int]) -> None:
        if message.payload == 2 and message.attempt == 1:
            raise Retry(after=0.1)
        order.append(message.payload)

    for n in range(1, 6):
        await alice.send("bob", n, thread="t")
    await world.pass_time(0.2)
    await alice.settled()

    assert order == [1, 2, 3, 4, 5]


async def test_a_message_whose_connection_breaks_while_it_is_handled_is_handled_once(world: World) -> None:
    alice, bob = await world.agent("alice"), await world.agent("bob")
    calls: list[Any] = []
    may_end = asyncio.Event()

    @bob.on(concurrency=2)
    async def handle(message: Message[Any]) -> None:
        calls.append(message.payload)
        await may_end.wait()

    sents = await alice.send_many("bob", range(5))
    await until(lambda: len(calls) == 2)
    world.cut(bob)
    await until(lambda: bob.state.__class__.__name__ == "Live" and bob._engine.connection.is_live())
    may_end.set()

    assert [await sent.ended() for sent in sents] == [Delivered(attempt=1, was_stored=True)] * 5
    assert sorted(calls) == list(range(5))


async def test_messages_come_one_by_one_in_a_loop(world: World) -> None:
    alice, bob = await world.agent("alice"), await world.agent("bob")
    sents = await alice.send_many("bob", ["a", "b", "c"])

    got = []
    async for message in bob.messages():
        got.append(message.payload)
        if message.payload == "b":
            break

    assert got == ["a", "b"]
    assert isinstance(await sents[0].ended(), Delivered)
    await bob.close()
    assert world.depth("bob") == 2


async def test_a_gap_in_a_thread_is_reported(world: World) -> None:
    gaps: list[range] = []
    alice, bob = await world.agent("alice"), await world.agent("bob", on_gap=lambda gap: gaps.append(gap.missing))
    handled_by(bob)
    await (await alice.send("bob", 1, thread="t")).ended()
    await bob.close()
    bob = await world.agent("bob", on_gap=lambda gap: gaps.append(gap.missing))
    handled_by(bob)
    await (await alice.send("bob", 2, thread="t")).ended()
    lost = await alice.send("bob", 3, thread="t", delay=60)
    await lost.accepted()
    await lost.cancel()

    await (await alice.send("bob", 4, thread="t")).ended()

    assert gaps == [range(3, 4)]
    assert (await bob.sync("alice", "t")).received.last_seq == 4


# -- asking


async def test_a_request_is_answered_by_what_the_handler_returns(world: World) -> None:
    alice, bob = await world.agent("alice"), await world.agent("bob")

    @bob.on("sum")
    async def add(message: Message[list[int]]) -> int:
        return sum(message.payload)

    answers = await asyncio.gather(*(alice.ask("bob", [n, n], type="sum") for n in range(20)))

    assert answers == [2 * n for n in range(20)]
    assert alice.unsettled == 0
    await until(lambda: world.depth("alice") == 0)


async def test_an_answer_comes_in_parts(world: World) -> None:
    alice, bob = await world.agent("alice"), await world.agent("bob")

    @bob.on()
    async def tell(message: Message[int]) -> AsyncIterator[int]:
        for n in range(message.payload):
            yield n

    assert [part async for part in alice.ask_stream("bob", 5)] == list(range(5))
    assert await alice.ask("bob", 3) == [0, 1, 2]


async def test_a_plain_function_handles_in_a_thread(world: World) -> None:
    alice, bob = await world.agent("alice"), await world.agent("bob")

    @bob.on()
    def double(message: Message[int]) -> int:
        return 2 * message.payload

    assert await alice.ask("bob", 21) == 42


async def test_a_request_that_dies_says_so_at_once(world: World) -> None:
    alice, bob = await world.agent("alice"), await world.agent("bob")

    @bob.on()
    async def refuse(_: Message[Any]) -> None:
        raise Reject("not a sum")

    with pytest.raises(Died, match="not a sum"):
        await alice.ask("bob", "2+?", timeout=WITHIN_S)


async def test_a_request_that_nobody_answers_times_out_and_leaves_nothing(world: World) -> None:
    alice = await world.agent("alice")

    with pytest.raises(TimeoutError):
        await alice.ask("bob", "anybody?", timeout=0.2)

    assert alice.unsettled == 0


async def test_agents_that_share_a_mailbox_ask_too(world: World) -> None:
    pool = [await world.agent("pool", mode="shared") for _ in range(2)]
    sender = await world.agent("cli", token=world.token("cli", "send"))
    bob = await world.agent("bob")

    @bob.on()
    async def parts(message: Message[str]) -> AsyncIterator[str]:
        yield message.payload
        yield "!"

    assert await pool[0].ask("bob", "a", timeout=WITHIN_S) == ["a", "!"]
    assert [part async for part in sender.ask_stream("bob", "b", timeout=WITHIN_S)] == ["b", "!"]
    assert world.depth("pool") == world.depth("cli") == 0


async def test_an_agent_that_is_registered_as_shared_asks_too(world: World) -> None:
    first = await world.agent("pool")
    await first._engine.calls.register(first.address, mode="shared")
    await first.close()
    pool = [await world.agent("pool") for _ in range(2)]
    for one in pool:
        handled_by(one)
    bob = await world.agent("bob")

    @bob.on()
    async def echo(message: Message[int]) -> int:
        return message.payload

    answers = await asyncio.gather(*(one.ask("bob", n, timeout=WITHIN_S) for n, one in enumerate(pool)))

    assert answers == [0, 1]


async def test_many_share_a_mailbox_and_each_message_is_handled_once(world: World) -> None:
    alice = await world.agent("alice")
    pool = [await world.agent("pool", mode="shared", window=5) for _ in range(3)]
    got = [handled_by(one, concurrency=2) for one in pool]

    await alice.send_many("pool", range(60))
    await alice.settled()

    assert sorted(message.payload for some in got for message in some) == list(range(60))


async def test_a_handler_that_takes_long_keeps_its_message(world: World) -> None:
    alice, bob = await world.agent("alice"), await world.agent("bob", ack_timeout=0.6)
    calls = []

    @bob.on()
    async def slow(message: Message[Any]) -> None:
        calls.append(message.attempt)
        for _ in range(6):
            await world.pass_time(0.2)

    assert await (await alice.send("bob", 1)).ended() == Delivered(attempt=1)
    assert calls == [1]


# -- the rest


async def test_what_is_published_is_heard_by_who_listens(world: World) -> None:
    alice, bob = await world.agent("alice"), await world.agent("bob")
    heard: list[Any] = []

    async def listen() -> None:
        async for event in bob.subscribe("news"):
            heard.append((event.sender, event.payload))  # noqa: PERF401 - it never ends

    listening = asyncio.create_task(listen())
    while not heard:
        await alice.publish("news", "hello")
        await asyncio.sleep(0.02)
    world.cut(bob)
    before = len(heard)
    while len(heard) == before:
        await alice.publish("news", "again")
        await asyncio.sleep(0.02)
    listening.cancel()

    assert heard[0] == (alice.address, "hello")
    assert heard[-1] == (alice.address, "again")


async def test_a_blocked_sender_cannot_tell(world: World) -> None:
    eve, bob = await world.agent("eve"), await world.agent("bob")
    got = handled_by(bob)

    assert await bob.block("eve") == [eve.address]
    assert await (await eve.send("bob", 1)).accepted()
    assert await bob.unblock("eve") == []
    await (await eve.send("bob", 2)).ended()

    assert [message.payload for message in got] == [2]


async def test_presence_tells_who_is_there(world: World) -> None:
    alice, bob = await world.agent("alice"), await world.agent("bob")

    seen = await alice.presence("bob", "nobody")

    assert [seen[bob.address].online, seen[bob.address.replace("bob", "nobody")].online] == [True, False]


async def test_the_newest_session_has_the_mailbox(world: World) -> None:
    old = await world.agent("bob")
    states = old.states()
    await anext(states)

    new = await world.agent("bob")

    replaced = await anext(states)
    assert isinstance(replaced, ReplacedBy)
    assert "a newer session" in replaced.reason
    with pytest.raises(Replaced):
        await old.run()
    with pytest.raises(Closed):
        await old.send("carol", 1)
    assert new.address == old.address


async def test_a_key_opens_a_session_and_signs(world: World) -> None:
    key = Key.generate()
    address = (await world.agent("somebody")).address.replace("somebody", "kim")
    kim = await world.agent("kim", key=key, address=address, security=Security(sign_with=key))
    bob = await world.agent("bob", security=Security(requires_signatures=True))
    got = handled_by(bob)

    await (await kim.send("bob", "it was me", thread="t", type="note")).ended()
    unsigned = await (await world.agent("alice")).send("bob", "and me")

    assert [(message.payload, message.is_signed) for message in got] == [("it was me", True)]
    assert isinstance(await unsigned.ended(), Dead)


async def test_another_key_than_the_pinned_one_is_not_believed(world: World) -> None:
    bob = await world.agent("bob")
    got = handled_by(bob)
    alice = await world.agent("alice", security=Security(sign_with=Key.generate()))
    bob.pin(alice.address, Key.generate().public)

    sent = await alice.send("bob", "it was me", max_attempts=1)

    end = await sent.ended()
    assert isinstance(end, Dead)
    assert end.reason.startswith(KeyChanged.__name__)
    assert got == []


async def test_a_sealed_conversation_is_not_seen_by_the_relay(world: World) -> None:
    alice, bob = [
        await world.agent(name, security=Security(seal_with=SealingKey.generate(), sign_with=Key.generate()))
        for name in ("alice", "bob")
    ]
    raw: list[bytes] = []

    @bob.on()
    async def answer(message: Message[str]) -> str:
        raw.append(message._delivery.payload)
        assert message.was_sealed
        return message.payload + " it is"

    sent = await alice.send("carol", "secret", sealed=False)
    with pytest.raises(CannotOpen):
        await alice.send("carol", "secret", sealed=True)

    assert await alice.ask("bob", "noon?", sealed=True) == "noon? it is"
    assert sent.to == "carol"


# -- files


async def test_what_was_sent_outlives_the_process_in_order(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relay.client.agent.engine.CLOSE_WITHIN_S", 0.1)
    for start in range(0, 30, 10):
        offline = world.made("alice", outbox=tmp_path / "alice.db")
        async with offline:
            offline._engine.connection.is_live = lambda: False  # type: ignore[method-assign]
            for n in range(start, start + 10):
                await offline.send("bob", n, thread="t", id=f"m-{n}")
    got = handled_by(await world.agent("bob"))

    alice = await world.agent("alice", outbox=tmp_path / "alice.db")
    await alice.settled()

    assert [message.payload for message in got] == list(range(30))
    assert [message.seq for message in got] == list(range(1, 31))
    assert alice.unsettled == 0


async def test_a_repeat_is_known_after_a_restart_and_is_answered_again(world: World, tmp_path: Path) -> None:
    alice = await world.agent("alice")
    calls: list[Any] = []

    def handles(bob: Agent) -> None:
        @bob.on()
        async def handle(message: Message[Any]) -> str:
            calls.append(message.payload)
            return "done"

    first = await world.agent("bob", outbox=tmp_path / "bob.db")
    first._engine.inbox.holds._confirm = lambda done: None  # type: ignore[method-assign]  # noqa: ARG005 - dies before its ack
    handles(first)
    asking = asyncio.create_task(alice.ask("bob", 1, timeout=WITHIN_S))
    sent = await alice.send("bob", 2)
    await until(lambda: len(calls) == 2)
    await first.close()
    second = await world.agent("bob", outbox=tmp_path / "bob.db")
    handles(second)

    assert await asking == "done"
    assert isinstance(await sent.ended(), Delivered)
    assert sorted(calls) == [1, 2]
