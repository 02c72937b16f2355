"""The outbox where nothing goes well: refusals, deadlines, files that fail or must not grow."""

import asyncio
import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from relay.client import Agent, Cancelled, Closed, Expired, Message, OutboxFailed, QueueFull, Refused
from relay.client.clock import RealClock
from relay.client.connection.backoff import Backoff
from relay.client.connection.frames import Accepted, Refusal
from relay.client.journal import MemoryJournal
from relay.client.outbox.outbox import Outbox
from relay.client.outbox.outcomes import Delivered
from relay.testing import FakeRelay, HandClock
from tests.agents import until


class Wire:
    """Hears what an outbox says."""

    def __init__(self) -> None:
        self.said: list[bytes] = []

    def is_live(self) -> bool:
        return True

    def say(self, text: bytes) -> None:
        self.said.append(text)


class Bench:
    """An outbox alone, with a wire and a clock of the test's own."""

    def __init__(self) -> None:
        self.wire, self.clock = Wire(), HandClock()
        self.outbox = Outbox(MemoryJournal(), self.clock, self.wire, 1_000, waits=True)

    def put(self, id: str, to: str = "bob") -> Any:
        return self.outbox.put(to, id, b'{"id":"%b"' % id.encode(), self.clock.now() + 3_600, 0.0, is_request=False)

    async def said(self) -> list[list[str]]:
        """The ids of each frame that went out since the last time."""
        await asyncio.sleep(0)
        frames, self.wire.said = self.wire.said, []
        return [[part.partition('"')[0] for part in frame.decode().split('{"id":"')[1:]] for frame in frames]

    def accept(self, *ids: str) -> None:
        self.outbox.answers.accepted(Accepted(list(ids), []))

    def refuse(self, *ids: str, code: str = "queue_full", retry_after_ms: int | None = 1_000) -> None:
        self.outbox.answers.refused(
            [Refusal(code, id=id, to="bob", retryable=True, retry_after_ms=retry_after_ms) for id in ids]
        )


async def test_what_is_put_in_one_turn_shares_a_frame() -> None:
    bench = Bench()
    for n in range(5):
        bench.put(f"m-{n}", to=f"r{n % 2}")

    assert [sorted(ids) for ids in await bench.said()] == [[f"m-{n}" for n in range(5)]]


async def test_a_frame_has_at_most_500_messages() -> None:
    bench = Bench()
    for n in range(600):
        bench.put(f"m-{n}", to=f"r{n % 7}")

    assert [len(ids) for ids in await bench.said()] == [500, 100]


async def test_nothing_overtakes_what_was_refused() -> None:
    bench = Bench()
    for n in range(3):
        bench.put(f"m-{n}")
    await bench.said()
    bench.put("m-3")
    assert await bench.said() == []  # one frame of a recipient at a time

    bench.accept("m-0")
    bench.refuse("m-1", "m-2")
    assert bench.outbox.find("bob", "m-1").held_up_by == "queue_full"  # type: ignore[union-attr]
    assert await bench.said() == []
    bench.clock.advance(seconds=0.9)
    assert await bench.said() == []
    bench.clock.advance(seconds=0.7)

    assert await bench.said() == [["m-1", "m-2", "m-3"]]


async def test_a_request_does_not_wait_for_a_mailbox_that_is_known_to_be_full() -> None:
    bench = Bench()
    bench.put("m-1")
    await bench.said()
    waiting = bench.outbox.put("bob", "ask-1", b'{"id":"ask-1"', bench.clock.now() + 60, 0.0, is_request=True)
    bench.refuse("m-1")
    late = bench.outbox.put("bob", "ask-2", b'{"id":"ask-2"', bench.clock.now() + 60, 0.0, is_request=True)

    for one in (waiting, late):
        with pytest.raises(QueueFull) as full:
            await one.accepted()
        assert 1 <= full.value.retry_after <= 1.5


async def test_one_full_mailbox_does_not_hold_up_others() -> None:
    bench = Bench()
    bench.put("m-1")
    await bench.said()
    bench.refuse("m-1")

    bench.put("m-2", to="carol")

    assert await bench.said() == [["m-2"]]


async def test_a_reconnect_tries_again_at_once() -> None:
    bench = Bench()
    bench.put("m-1")
    await bench.said()
    bench.refuse("m-1", retry_after_ms=600_000)

    bench.outbox.connected(is_new_epoch=False)

    assert await bench.said() == [["m-1"]]


async def test_what_is_accepted_goes_out_again_only_after_a_wipe() -> None:
    bench = Bench()
    for n in range(3):
        bench.put(f"m-{n}")
    await bench.said()
    bench.accept("m-0", "m-1")

    bench.outbox.connected(is_new_epoch=False)
    assert await bench.said() == [["m-2"]]
    bench.outbox.connected(is_new_epoch=True)

    assert await bench.said() == [["m-0", "m-1", "m-2"]]


async def test_a_frame_that_the_relay_does_not_take_ends_only_what_is_too_large() -> None:
    bench = Bench()
    large = bench.outbox.put("bob", "big", b'{"id":"big"' + b" " * 2**21, bench.clock.now() + 60, 0.0, is_request=False)
    bench.put("small", to="carol")
    await bench.said()

    bench.outbox.answers.frame_was_too_large()
    bench.outbox.connected(is_new_epoch=False)

    assert await bench.said() == [["small"]]
    with pytest.raises(Refused, match="too_large"):
        await large.accepted()


def test_pauses_grow_with_full_jitter_and_keep_to_what_the_relay_asked() -> None:
    random.seed(1)
    backoff = Backoff(10, 600)

    pauses = [[Backoff(10, 600).next_s() for _ in range(50)], [backoff.next_s() for _ in range(200)]]
    asked = Backoff(10, 600)

    assert max(pauses[0]) <= 10
    assert 550 < max(pauses[1]) <= 600
    assert min(pauses[1][10:]) < 60
    assert 2 <= asked.next_s(2) <= 3
    assert all(asked.next_s(30) >= 30 for _ in range(20))


async def test_a_message_past_its_deadline_ends_without_having_been_sent() -> None:
    relay = FakeRelay()
    relay.go_down()
    async with relay.agent("alice") as alice:
        sent = await alice.send("bob", 1, ttl=60)
        relay.clock.advance(minutes=2)

        assert await sent.ended() == Expired()
        assert alice.unsettled == 0


async def test_a_message_that_never_went_out_is_taken_back_at_once() -> None:
    relay = FakeRelay()
    relay.go_down()
    async with relay.agent("alice") as alice:
        sent = await alice.send("bob", 1)

        assert await sent.cancel()
        assert await sent.ended() == Cancelled()


async def test_an_accepted_message_without_a_receipt_expires_in_the_end() -> None:
    relay = FakeRelay()
    async with relay.agent("eve") as eve, relay.agent("bob") as bob:
        await bob.block("eve")
        sent = await eve.send("bob", 1, ttl=60)
        await sent.accepted()
        relay.clock.advance(minutes=30)

        assert await sent.ended() == Expired()


async def test_who_waits_is_told_when_the_agent_ends() -> None:
    relay = FakeRelay()
    relay.go_down()
    async with relay.agent("alice") as alice:
        sent = await alice.send("bob", 1)
        waiting = asyncio.create_task(sent.ended())
        await asyncio.sleep(0)

    with pytest.raises(Closed, match="the agent was closed"):
        await waiting


# -- files


async def test_an_outbox_has_one_owner(tmp_path: Path) -> None:
    relay = FakeRelay()
    async with relay.agent("alice", outbox=tmp_path / "alice.db"):
        with pytest.raises(OutboxFailed, match="in use"):
            async with relay.agent("alice", outbox=tmp_path / "alice.db"):
                pass


async def test_a_file_that_is_something_else_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "alice.db"
    path.write_text("not a database" * 1_000)

    with pytest.raises(OutboxFailed, match=r"alice\.db"):
        async with FakeRelay().agent("alice", outbox=path):
            pass


async def test_a_send_that_cannot_be_kept_fails_and_ends_the_agent(tmp_path: Path) -> None:
    relay = FakeRelay()
    async with relay.agent("alice", outbox=tmp_path / "alice.db") as alice:
        await alice.execute("DROP TABLE relay_outbox")

        with pytest.raises(OutboxFailed):
            await alice.send("bob", 1)
        with pytest.raises(OutboxFailed):
            await alice.run()


async def test_the_file_does_not_grow_for_ever(tmp_path: Path) -> None:
    relay = FakeRelay(mailbox_max_messages=100_000)
    path = tmp_path / "alice.db"
    async with relay.agent("alice", outbox=path) as alice:
        await alice.send_many("bob", ["x" * 10_000] * 300)
        await alice.flush()
        async with relay.agent("bob") as bob:

            @bob.on()
            async def handle(_: Message[Any]) -> None: ...

            await alice.settled()
    largest = path.stat().st_size
    async with relay.agent("alice", outbox=path):
        pass

    assert largest > 3_000_000
    assert path.stat().st_size < 200_000


async def test_everything_is_in_the_file_when_send_returns(tmp_path: Path) -> None:
    relay = FakeRelay()
    relay.go_down()
    async with relay.agent("alice", outbox=tmp_path / "alice.db") as alice:
        await asyncio.gather(*(alice.send("bob", n) for n in range(50)))
        await alice.send_many("bob", range(50, 100))
    with closing(sqlite3.connect(tmp_path / "alice.db")) as db:
        kept = [row[0] for row in db.execute("SELECT body FROM relay_outbox ORDER BY serial")]

    assert [int(body.rpartition(b":")[2]) for body in kept] == list(range(100))


async def test_what_was_accepted_is_not_sent_again_after_a_restart(tmp_path: Path) -> None:
    relay = FakeRelay(dedup_window_s=0)
    calls: list[Any] = []
    async with relay.agent("alice", outbox=tmp_path / "alice.db") as alice:
        await (await alice.send("bob", 1)).accepted()
    async with relay.agent("bob") as bob:

        @bob.on()
        async def handle(message: Message[Any]) -> None:
            calls.append(message.payload)

        async with relay.agent("alice", outbox=tmp_path / "alice.db") as alice:
            await alice.settled()

    assert calls == [1]


async def test_a_wipe_while_the_sender_was_away_is_noticed(tmp_path: Path) -> None:
    relay = FakeRelay()
    async with relay.agent("alice", outbox=tmp_path / "alice.db") as alice:
        await (await alice.send("bob", 1)).accepted()
    relay.wipe()
    assert relay.waiting("bob") == []

    async with relay.agent("alice", outbox=tmp_path / "alice.db") as alice:
        await alice.live()
        await alice.flush()

    assert relay.waiting("bob") == [1]


async def test_a_crash_between_a_wipe_and_the_resending_loses_nothing(tmp_path: Path) -> None:
    relay = FakeRelay()
    async with relay.agent("alice", outbox=tmp_path / "alice.db") as alice:
        await (await alice.send("bob", 1)).accepted()
        relay.clock.advance(seconds=2)  # it is noted that the relay has it
        engine = alice._engine
        engine.outbox._queues._say = lambda _: None  # type: ignore[method-assign]  # what is sent again goes nowhere
        relay.wipe()
        await until(lambda: engine._epoch == relay.epoch)
        await engine.journal.kept()
        for suffix in ("", "-wal"):  # as a crash leaves them
            shutil.copy(tmp_path / f"alice.db{suffix}", tmp_path / f"crashed.db{suffix}")

    async with relay.agent("alice", outbox=tmp_path / "crashed.db") as alice:
        await alice.flush()

    assert relay.waiting("bob") == [1]


async def test_a_flush_is_over_when_the_relay_has_what_was_sent_before_it() -> None:
    bench = Bench()
    bench.put("m-1")
    await bench.said()
    flushing = asyncio.create_task(bench.outbox.until_accepted())
    await asyncio.sleep(0)

    bench.put("m-2")
    bench.accept("m-1")

    await asyncio.wait_for(flushing, 1)


async def test_a_place_that_a_cancelled_send_was_given_is_the_next_ones() -> None:
    bench = Bench()
    bench.outbox.room._limit = 1
    first = bench.put("m-1")
    waiting = [asyncio.create_task(bench.outbox.room.wait()) for _ in range(2)]
    await asyncio.sleep(0)

    bench.outbox.end(first, Cancelled())
    waiting[0].cancel()

    await asyncio.wait_for(waiting[1], 1)


async def test_what_ended_before_the_relay_had_it_was_never_accepted() -> None:
    bench = Bench()
    sent = bench.put("m-1")
    await sent.cancel()

    with pytest.raises(Refused, match="cancelled"):
        await sent.accepted()


async def test_a_statement_that_fails_is_a_failure_of_its_handler_alone(tmp_path: Path) -> None:
    relay = FakeRelay()
    async with relay.agent("alice") as alice, relay.agent("bob", outbox=tmp_path / "bob.db") as bob:
        await bob.execute("CREATE TABLE numbers (n INTEGER PRIMARY KEY)")

        @bob.on(concurrency=4, ordered_by="thread")
        async def handle(message: Message[int]) -> None:
            message.also("INSERT INTO numbers VALUES (?)", message.payload)

        sents = [await alice.send("bob", n, thread=str(n), max_attempts=1) for n in (1, 2, 1, 3)]
        ends = [await sent.ended() for sent in sents]

        assert sum(isinstance(end, Delivered) for end in ends) == 3
        assert await bob.execute("SELECT n FROM numbers ORDER BY n") == [(1,), (2,), (3,)]


async def test_statements_need_a_file() -> None:
    relay = FakeRelay()
    async with relay.agent("alice") as alice, relay.agent("bob") as bob:

        @bob.on()
        async def handle(message: Message[int]) -> None:
            message.also("INSERT INTO numbers VALUES (?)", message.payload)

        end = await (await alice.send("bob", 1, max_attempts=1)).ended()
        with pytest.raises(OutboxFailed):
            await bob.execute("SELECT 1")

    assert "needs an agent with an outbox file" in end.reason  # type: ignore[union-attr]


async def test_the_real_clock_is_the_machines() -> None:
    rung = asyncio.Event()
    RealClock().call_later(0, rung.set)

    await asyncio.wait_for(rung.wait(), 5)


async def test_an_agent_is_used_in_async_with() -> None:
    agent = Agent("ws://127.0.0.1:9", token="none")

    with pytest.raises(Closed, match="async with"):
        await agent.send("bob", 1)
