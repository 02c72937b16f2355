"""Instances and servers that die or are told to stop, in the middle of everything."""

import asyncio
import signal
import time

import aiohttp
import pytest

from tests.agents import Agent, Frame, message, messages, until
from tests.system.conftest import Instance, Room

pytestmark = pytest.mark.xdist_group("crashes")

SETTINGS = {"recheck_s": 0.3, "heartbeat_s": 1, "drain_s": 5}
OPTIONS = {"appendfsync": "always"}


class Sender:
    """Sends numbered messages until each is accepted, through whichever instance is there."""

    def __init__(self, room: Room, name: str, recipients: list[str], count: int) -> None:
        self._room = room
        self.name = name
        self.todo = {f"{name}-{n}": message(f"{name}-{n}", recipients[n % len(recipients)], n) for n in range(count)}
        self.accepted: set[str] = set()

    async def run(self, first: Instance, second: Instance) -> None:
        at = first
        while self.todo:
            try:
                agent = await self._room.agent(self.name, at=at, scope="send")
                await self._send_all(agent)
                await agent.close()  # the session that sent is the first to get the receipts
            except (AssertionError, aiohttp.ClientError, ConnectionError, TimeoutError):
                at = second

    async def _send_all(self, agent: Agent) -> None:
        waiting = list(self.todo.values())
        for start in range(0, len(waiting), 5):
            batch = waiting[start : start + 5]
            await agent.send(*batch)
            missing = {one["id"] for one in batch}
            while missing:
                answer = await agent.expect("accepted", within_s=5, or_fail="closing")
                done = {*answer["ids"], *answer["duplicate_ids"]}
                missing -= done
                self.accepted |= done
                for id in done:
                    self.todo.pop(id, None)


class Recipient:
    """Acks everything it gets; comes back through the other instance when it is cut off."""

    def __init__(self, room: Room, name: str) -> None:
        self._room = room
        self.name = name
        self.acked: list[Frame] = []  # what the relay confirmed
        self.unsure: set[str] = set()  # acks that were never answered

    async def run(self, first: Instance, second: Instance) -> None:
        at = first
        while True:
            try:
                agent = await self._room.agent(self.name, at=at, window=20)
                while True:
                    one = await agent.delivery(within_s=60)
                    self.unsure.add(one["id"])
                    await agent.ack(one)
                    self.unsure.discard(one["id"])
                    self.acked.append(one)
            except (AssertionError, aiohttp.ClientError, ConnectionError, TimeoutError):
                at = second


async def test_an_accepted_message_outlives_a_kill_of_the_server(room: Room) -> None:
    alice = await room.agent("alice")
    await alice.send(*messages(50))
    answer = await alice.expect("accepted")

    room.relay.server.kill()
    room.relay.server.start()

    assert answer["durability"] == "fsync"
    await room.a.is_ready()
    await room.b.is_ready()
    bob = await room.agent("bob", at=room.b)
    assert [one["payload"] for one in await bob.deliveries(50)] == list(range(1, 51))
    assert bob.welcome["epoch"] == alice.welcome["epoch"]
    assert await alice.sent(*messages(50)) == [f"m-{n}" for n in range(1, 51)]


async def test_an_ack_outlives_a_kill_of_the_server_and_sessions_go_on(room: Room) -> None:
    alice, bob = await room.agents("alice", "bob")
    await alice.sent(*messages(10))
    found = await bob.deliveries(10)
    await bob.ack(*found[:4])

    room.relay.server.kill()
    room.relay.server.start()
    await room.a.is_ready()
    await bob.ack(*found[4:6])
    await alice.sent(message("after"))

    assert (await bob.delivery())["id"] == "after"
    assert room.depth("bob") == 5
    assert len(bob.got_deliveries()) == 11


@pytest.mark.parametrize("how", ["kill", "drain"])
async def test_under_load_an_instance_ends_and_nothing_is_lost_doubled_or_stuck(room: Room, how: str) -> None:
    doomed, other = room.relay.instance(), room.b
    names = [f"r{n}" for n in range(4)]
    senders = [Sender(room, f"s{n}", names, 150) for n in range(4)]
    recipients = [Recipient(room, name) for name in names]
    sending = [asyncio.create_task(one.run(doomed, other)) for one in senders]
    receiving = [asyncio.create_task(one.run(doomed, other)) for one in recipients]
    await until(lambda: sum(len(one.acked) for one in recipients) > 60, "the load is on")

    if how == "kill":
        await asyncio.to_thread(doomed.kill)
    else:
        doomed.signal(signal.SIGTERM)
    await asyncio.wait_for(asyncio.gather(*sending), 30)
    await until(lambda: all(room.depth(name) == 0 for name in names), "everything is acked", within_s=30)
    await _cancelled(receiving)

    if how == "drain":
        assert await asyncio.to_thread(doomed.wait) == 0
        assert doomed.complaints() == []
    for recipient in recipients:
        got = [one["id"] for one in recipient.acked]
        expected = {id for one in senders for id in one.accepted if _recipient_of(id, names) == recipient.name}
        assert len(got) == len(set(got)), "an acked message came again"
        assert set(got) | recipient.unsure >= expected, "lost"
        assert set(got) <= expected, "from nowhere"
        if how == "kill":
            assert all(one["attempt"] == 1 for one in recipient.acked), "a crash is nobody's failure"
    # What the dead instance had not brought to its senders a worker does: each receipt arrives, and once.
    for sender in senders:
        agent = await room.agent(sender.name, at=other)
        receipts = await agent.receipts(len(sender.accepted), within_s=30)
        assert sorted(one["id"] for one in receipts) == sorted(sender.accepted)
        await agent.say("receipts_ack", cursor=agent.got("receipts")[-1]["cursor"])
    await until(lambda: not any(room.redis.xlen(room.keys.outbox(n)) for n in range(room.keys.shards)), within_s=30)


async def _cancelled(tasks: list["asyncio.Task[None]"]) -> None:
    """Ends tasks that start again after errors: a cancellation that comes with a timeout may be taken for that."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=1)


def _recipient_of(id: str, names: list[str]) -> str:
    return names[int(id.partition("-")[2]) % len(names)]


async def test_a_draining_instance_lets_its_sessions_finish_and_tells_them_when_to_come_back(room: Room) -> None:
    instance = room.relay.instance()
    alice, bob = await room.agent("alice", at=instance), await room.agent("bob", at=instance)
    idle = [await room.agent(f"idle-{n}", at=instance) for n in range(8)]
    await alice.sent(*messages(3))
    held = await bob.deliveries(3)

    instance.signal(signal.SIGTERM)
    closing = await bob.expect("closing")
    await bob.ack(held[0])  # an answer still arrives
    with pytest.raises(aiohttp.ClientError):
        await room.agent("carol", at=instance)
    await bob.say("nack", entries=[held[1]["entry"]], delay_s=0, confirm=True)
    await bob.expect("settled")

    assert closing["code"] == "draining"
    assert 0 <= closing["retry_after_ms"] < 5_000
    assert await bob.closed() == 4001
    times = set()
    for one in idle:
        assert await one.closed() == 4001
        times.add(one.got("closing")[0]["retry_after_ms"])
    assert len(times) > 4, "clients come back spread out"
    assert await asyncio.to_thread(instance.wait) == 0
    assert instance.complaints() == []
    again = await room.agent("bob", at=room.b)
    found = await again.deliveries(2)
    assert [(one["payload"], one["attempt"]) for one in found] == [(2, 2), (3, 1)]


async def test_an_instance_that_stops_does_not_wait_for_who_holds_on_for_ever(room: Room) -> None:
    instance = room.relay.instance(drain_s=1)
    alice, bob = await room.agent("alice"), await room.agent("bob", at=instance)
    await alice.sent(message("m-1"))
    await bob.delivery()
    began = time.monotonic()

    instance.signal(signal.SIGTERM)

    assert await asyncio.to_thread(instance.wait) == 0
    assert time.monotonic() - began < 8
    again = await room.agent("bob", at=room.b)
    assert (await again.delivery())["attempt"] == 1


async def test_a_frozen_instance_loses_its_agents_to_the_others_and_finds_out_when_it_wakes(room: Room) -> None:
    instance = room.relay.instance()
    alice = await room.agent("alice")
    old = await room.agent("bob", at=instance)
    await alice.sent(*messages(3))
    held = await old.deliveries(3)

    instance.signal(signal.SIGSTOP)
    new = await room.agent("bob", at=room.b)
    found = await new.deliveries(3)
    await new.ack(found[0])
    await old.say("ack", entries=[held[1]["entry"]])
    instance.signal(signal.SIGCONT)

    assert await old.closed() == 4509
    await new.settled_down()
    assert set(room.holders("bob")) == {found[1]["entry"], found[2]["entry"]}
    await new.ack(*found[1:])
    assert room.depth("bob") == 0


async def test_blocks_keys_and_receipts_survive_a_restart_of_everything(room: Room) -> None:
    instance = room.relay.instance()
    alice, bob = await room.agent("alice", at=instance), await room.agent("bob", at=instance)
    await bob.say("block", agents=["eve"])
    await bob.expect("blocks")
    await alice.sent(message("m-1"))
    await bob.ack(await bob.delivery())
    await alice.expect("receipts")

    await asyncio.to_thread(instance.kill)
    room.relay.server.kill()
    room.relay.server.start()
    fresh = room.relay.instance()
    await fresh.is_ready()

    eve = await room.agent("eve", at=fresh)
    await eve.sent(message("m-2"))
    back = await room.agent("alice", at=fresh)
    assert (await back.receipts(1))[0]["id"] == "m-1"
    assert room.depth("bob") == 0


async def test_a_request_answered_just_before_the_crash_still_brings_its_reply(room: Room) -> None:
    instance = room.relay.instance()
    alice, bob = await room.agent("alice"), await room.agent("bob", at=instance)
    await alice.sent(message("q-1", request=True))
    question = await bob.delivery()

    await bob.say("reply", entry=question["entry"], payload="yes", confirm=True)
    await bob.expect("settled")
    await asyncio.to_thread(instance.kill)

    assert (await alice.delivery(within_s=20))["payload"] == "yes"


async def test_a_worker_that_dies_is_replaced_by_another_process(room: Room) -> None:
    spare = room.relay.process("workers")
    await asyncio.to_thread(spare.wait_for, "working")
    alice, bob = await room.agents("alice", "bob")
    await bob.drained()

    await asyncio.to_thread(room.relay.workers.kill)
    await alice.sent(message("later", delay_s=0.5))

    assert (await bob.delivery(within_s=10))["id"] == "later"
    room.relay.workers = spare
