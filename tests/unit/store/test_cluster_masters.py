"""Commands on a Cluster whose nodes answer by a script: sent on, asked for, tried again, given up."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import hiredis
import pytest

from relay.errors import StoreUnavailable
from relay.store.redis.pipeline import CommandPipeline
from relay.store.redis.servers import cluster as clusters
from relay.store.redis.servers import master, topology
from relay.store.redis.servers.connect import home_at
from relay.store.redis.servers.slots import SLOTS, slot_of
from relay.store.redis.servers.topology import Topology

KEY, OTHER_KEY = "relay:{s00}:a", "relay:{s01}:b"
SHARD_SLOTS = [slot_of("{s00}"), slot_of("{s01}")]
SOON_S = 5.0

Answer = Callable[[list[str]], str | None]


class FakeNode:
    """Answers as it is told, and says which slots are whose. What it is asked is kept."""

    def __init__(self) -> None:
        self.port = 0
        self.heard: list[list[str]] = []
        self.answer: Answer = lambda _: None  # None: the last word of the command
        self.is_hung = False  # whether it answers no commands
        self.owners: dict[str, tuple[FakeNode, int]] = {}  # range -> master, its epoch

    async def serve(self) -> asyncio.Server:
        server = await asyncio.start_server(self._talk, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    @property
    def id(self) -> str:
        return f"node-{self.port}"

    def own(self, *claims: tuple["FakeNode", int, int, int]) -> None:
        """Claims: master, epoch, first slot, last slot."""
        self.owners = {f"{first}-{last}": (master, epoch) for master, epoch, first, last in claims}

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests = hiredis.Reader(encoding="utf-8")
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                requests.feed(data)
                while (words := requests.gets()) is not False:
                    writer.write(self._reply(words))
        writer.close()

    def _reply(self, words: list[str]) -> bytes:
        if words[:2] == ["CLUSTER", "SLOTS"]:
            return self._slots()
        if words[:2] == ["CLUSTER", "NODES"]:
            lines = [f"{node.id} 1:1@1 master - 0 0 {epoch} connected" for node, epoch in self.owners.values()]
            return _bulk("\n".join(lines))
        if words[0] in ("CLIENT", "SCRIPT"):
            return b"+OK\r\n"
        if self.is_hung:
            return b""
        self.heard.append(words)
        said = self.answer(words)
        return _bulk(words[-1]) if said is None else f"-{said}\r\n".encode()

    def _slots(self) -> bytes:
        rows = []
        for span, (node, _) in self.owners.items():
            first, last = span.split("-")
            master = b"*3\r\n" + _bulk("127.0.0.1") + b":%d\r\n" % node.port + _bulk(node.id)
            rows.append(b"*3\r\n:%d\r\n:%d\r\n" % (int(first), int(last)) + master)
        return b"*%d\r\n" % len(rows) + b"".join(rows)

    def said(self, name: str) -> list[list[str]]:
        return [words for words in self.heard if words[0] == name]


def _bulk(text: str) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(text.encode()), text.encode())


@asynccontextmanager
async def running(*seeds: FakeNode) -> AsyncIterator[CommandPipeline]:
    home = home_at("redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in seeds))
    assert isinstance(home, Topology)
    pipeline = CommandPipeline(home, slots=SHARD_SLOTS)
    tasks = [asyncio.create_task(home.watch()), asyncio.create_task(pipeline.run())]
    try:
        async with asyncio.timeout(SOON_S * 2):
            yield pipeline
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


@pytest.fixture
async def nodes() -> AsyncIterator[tuple[FakeNode, FakeNode]]:
    """The first has all slots."""
    one, two = FakeNode(), FakeNode()
    async with AsyncExitStack() as stack:
        for node in (one, two):
            await stack.enter_async_context(await node.serve())
        for node in (one, two):
            node.own((one, 1, 0, SLOTS - 1))
        yield one, two


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (clusters, master):
        monkeypatch.setattr(module, "GIVE_UP_AFTER_S", 0.3)


def once(said: str, name: str = "GET") -> Answer:
    """Says it to the first such command, and carries out the others."""
    left = [said]
    return lambda words: left.pop() if words[0] == name and left else None


async def test_what_has_moved_is_sent_on(nodes: tuple[FakeNode, FakeNode]) -> None:
    one, two = nodes
    one.answer = once(f"MOVED 1 127.0.0.1:{two.port}")

    async with running(one) as pipeline:
        assert await pipeline.command("GET", KEY) == KEY.encode()

    assert (one.said("GET"), two.said("GET")) == ([["GET", KEY]], [["GET", KEY]])
    assert two.said("ASKING") == []


async def test_a_node_that_does_not_tell_a_host_means_its_own(nodes: tuple[FakeNode, FakeNode]) -> None:
    one, two = nodes
    one.answer = once(f"MOVED 1 :{two.port}")

    async with running(one) as pipeline:
        assert await pipeline.command("GET", KEY) == KEY.encode()

    assert two.said("GET") == [["GET", KEY]]


async def test_what_is_moving_is_asked_for_once_and_the_next_goes_where_it_belongs(
    nodes: tuple[FakeNode, FakeNode],
) -> None:
    one, two = nodes
    one.answer = once(f"ASK 1 127.0.0.1:{two.port}")

    async with running(one) as pipeline:
        first = await pipeline.command("GET", KEY)
        second = await pipeline.command("GET", KEY + "2")

    assert (first, second) == (KEY.encode(), KEY.encode() + b"2")
    assert two.heard == [["ASKING"], ["GET", KEY]]
    assert one.said("GET") == [["GET", KEY], ["GET", KEY + "2"]]


async def test_what_is_tried_again_keeps_its_order_and_holds_up_no_other_slot(
    nodes: tuple[FakeNode, FakeNode],
) -> None:
    one, _ = nodes
    is_moving = [True]
    one.answer = lambda words: "TRYAGAIN later" if is_moving[0] and "{s00}" in words[-2] else None
    async with running(one) as pipeline:
        stuck = [asyncio.create_task(pipeline.command("SET", KEY, str(n))) for n in range(3)]
        assert await pipeline.command("SET", OTHER_KEY, "x") == b"x"
        later = asyncio.create_task(pipeline.command("SET", KEY, "3"))
        assert await pipeline.command("SET", OTHER_KEY, "y") == b"y"

        is_moving[0] = False
        done = await asyncio.gather(*stuck, later)

    assert done == [b"0", b"1", b"2", b"3"]
    carried_out = [words[-1] for words in one.said("SET")[-6:] if words[1] == KEY]
    assert carried_out[-4:] == ["0", "1", "2", "3"]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("said", ["CLUSTERDOWN Hash slot not served", "TRYAGAIN later"])
async def test_what_nobody_carries_out_is_given_up_by_the_name_of_its_shard(
    nodes: tuple[FakeNode, FakeNode], said: str
) -> None:
    one, _ = nodes
    one.answer = lambda words: said if "{s01}" in words[-1] else None

    async with running(one) as pipeline:
        with pytest.raises(StoreUnavailable, match="for shard 1;"):
            await pipeline.command("GET", OTHER_KEY)
        assert await pipeline.command("GET", KEY) == KEY.encode()


@pytest.mark.usefixtures("impatient")
async def test_nodes_that_send_a_command_to_each_other_are_not_asked_without_end(
    nodes: tuple[FakeNode, FakeNode],
) -> None:
    one, two = nodes
    one.answer = lambda _: f"MOVED 1 127.0.0.1:{two.port}"
    two.answer = lambda _: f"MOVED 1 127.0.0.1:{one.port}"

    async with running(one) as pipeline:
        with pytest.raises(StoreUnavailable):
            await pipeline.command("GET", KEY)

    assert len(one.said("GET")) + len(two.said("GET")) < 60


async def test_of_two_claims_the_later_one_counts(nodes: tuple[FakeNode, FakeNode]) -> None:
    one, two = nodes
    one.own((one, 1, 0, SLOTS - 1))
    two.own((two, 2, 0, SLOTS - 1))

    async with running(one, two) as pipeline:
        await _until_known(pipeline, two)
        await pipeline.command("GET", KEY)

    assert two.said("GET") == [["GET", KEY]]


async def test_a_slot_that_nobody_has_is_waited_for(nodes: tuple[FakeNode, FakeNode]) -> None:
    one, _ = nodes
    one.own()
    async with running(one) as pipeline:
        asked = asyncio.create_task(pipeline.command("GET", KEY))
        await asyncio.sleep(0.05)
        was_waiting = not asked.done()
        one.own((one, 1, 0, SLOTS - 1))

        assert await asked == KEY.encode()
    assert was_waiting


async def test_a_master_that_hangs_and_has_lost_its_slots_is_waited_for_no_longer(
    nodes: tuple[FakeNode, FakeNode], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(clusters, "LAST_WORDS_S", 0.05)
    monkeypatch.setattr(topology, "ASK_EVERY_S", 0.05)
    one, two = nodes
    async with running(two) as pipeline:
        assert await pipeline.command("GET", KEY) == KEY.encode()
        one.is_hung = True
        stuck = asyncio.create_task(pipeline.command("GET", KEY + "2"))
        await asyncio.sleep(0.1)
        was_stuck = not stuck.done()

        two.own((two, 2, 0, SLOTS - 1))

        assert await asyncio.wait_for(stuck, 1.0) == KEY.encode() + b"2"
        await asyncio.sleep(0.1)
    assert was_stuck
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def test_every_master_is_asked_about_itself(nodes: tuple[FakeNode, FakeNode]) -> None:
    one, two = nodes
    half = SHARD_SLOTS[0]
    spans = [(one, 1, 0, half), (two, 1, half + 1, SLOTS - 1)]
    if SHARD_SLOTS[1] <= half:
        spans = [(one, 1, 0, half - 1), (two, 1, half, SLOTS - 1)]
    one.own(*spans)
    two.own(*spans)

    async with running(one) as pipeline:
        replies = await pipeline.of_each("PING", "hello")

    assert list(replies.values()) == [b"hello", b"hello"]
    assert one.said("PING") == two.said("PING") == [["PING", "hello"]]


async def _until_known(pipeline: CommandPipeline, node: FakeNode) -> None:
    masters: Any = pipeline.masters
    async with asyncio.timeout(SOON_S):
        while masters.of_shard(0).name != f"127.0.0.1:{node.port}":  # noqa: ASYNC110 - nobody else tells
            await asyncio.sleep(0.01)
