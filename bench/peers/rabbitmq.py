"""RabbitMQ: classic durable queues, persistent messages, publisher confirms, manual acks."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

from bench.load import WINDOW
from bench.peers import amqp
from bench.peers.connection import Connection
from bench.peers.peer import Closable, Count, Deliver, Letters, Peer, Sender
from bench.peers.programs import Processes, running, server_folder
from bench.servers import HOST, free_port

DECLARED_AT_ONCE = 100
NO_DAEMON = "-start_epmd false"  # Erlang would leave a name server behind
ANSWERS = (amqp.OPEN_OK, amqp.CHANNEL_OPEN_OK, amqp.QOS_OK, amqp.CONSUME_OK, amqp.SELECT_OK)


class Client(Connection):
    """A connection with one channel."""

    def __init__(self, confirmed: Count | None = None, delivered: Deliver | None = None) -> None:
        super().__init__()
        self._confirmed = confirmed
        self._delivered = delivered
        self._confirms = amqp.Confirms()
        self._tag = 0  # the last one that came
        self._undeclared = 0

    async def begin(self, port: int) -> Self:
        await self.connect(port)
        await self.ask(amqp.GREETING)
        await self.ask(amqp.open_channel())
        return self

    async def declare(self, queues: list[str]) -> None:
        for start in range(0, len(queues), DECLARED_AT_ONCE):
            some = queues[start : start + DECLARED_AT_ONCE]
            self._undeclared = len(some)
            await self.ask(b"".join(map(amqp.declare, some)))

    def publish(self, letters: Letters) -> None:
        self.write(b"".join([amqp.publish(f"to-{to}", payload) for to, payload in letters]))

    def _take(self, data: bytes) -> int:
        frames, used = amqp.take_frames(data)
        confirms, payloads = 0, []
        for kind, payload in frames:
            if kind == amqp.BODY:
                payloads.append(payload)
            elif kind == amqp.METHOD:
                confirms += self._called(*amqp.method_of(payload))
        if confirms and self._confirmed:
            self._confirmed(confirms)
        if payloads and self._delivered:
            self._delivered(payloads)
            self.write(amqp.ack_up_to(self._tag - self._is_half_here(frames)))
        return used

    def _is_half_here(self, frames: list[tuple[int, bytes]]) -> bool:
        """The last delivery was announced, and its body is still to come."""
        return frames[-1][0] != amqp.BODY

    def _called(self, method: amqp.Method, arguments: bytes) -> int:
        """How many messages this confirms."""
        if method == amqp.ACK:
            return self._confirms.add(arguments)
        if method == amqp.DELIVER:
            self._tag = amqp.delivery_tag(arguments)
        elif method == amqp.START:
            self.write(amqp.start_ok("guest", "guest"))
        elif method == amqp.TUNE:
            self.write(amqp.tune_ok(arguments))
        elif method in ANSWERS:
            self._answered()
        elif method == amqp.DECLARE_OK:
            self._undeclared -= 1
            if self._undeclared == 0:
                self._answered()
        elif method in (amqp.CLOSE, amqp.CHANNEL_CLOSE):
            raise ConnectionError(repr(arguments))
        return 0


class Broker(Processes):
    tells_the_end = False

    def __init__(self, pid: int, port: int) -> None:
        super().__init__([pid])
        self._port = port

    async def declare(self, numbers: range) -> None:
        client = await Client().begin(self._port)
        await client.declare([f"to-{number}" for number in numbers])
        client.close()

    async def sender(self, number: int, confirmed: Count, ended: Count) -> Sender:  # noqa: ARG002 - never told
        client = await Client(confirmed=confirmed).begin(self._port)
        await client.ask(amqp.select_confirms())
        return client

    async def recipient(self, number: int, delivered: Deliver) -> Closable:
        client = await Client(delivered=delivered).begin(self._port)
        await client.ask(amqp.qos(WINDOW))
        await client.ask(amqp.consume(f"to-{number}"))
        return client


def program() -> Path | None:
    """The server's own script: the one on Debian's PATH would change the user and the folder."""
    found = shutil.which("rabbitmq-server")
    return Path(found).resolve().parent / "rabbitmq-server" if found else None


def _missing() -> str:
    return "" if program() else "rabbitmq-server is not on the PATH: apt-get install rabbitmq-server"


def environment(folder: Path, port: int, names_port: int) -> dict[str, str]:
    """Everything in the folder, nothing but loopback, and Erlang's name server on a port of its own."""
    return {
        "HOME": str(folder),
        "RABBITMQ_NODENAME": f"bench-{port}@localhost",
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"-kernel inet_dist_use_interface {{127,0,0,1}} {NO_DAEMON}",
        "RABBITMQ_CTL_ERL_ARGS": NO_DAEMON,
        "ERL_EPMD_PORT": str(names_port),
        "ERL_EPMD_ADDRESS": HOST,
    }


def configuration(port: int) -> str:
    return f"""
listeners.tcp.1 = {HOST}:{port}
tcp_listen_options.nodelay = true
tcp_listen_options.backlog = 1024
heartbeat = 0
log.console = false
"""


@contextmanager
def start() -> Iterator[Broker]:
    port, names_port = free_port(), free_port()
    with ExitStack() as stack:
        folder = stack.enter_context(server_folder())
        (folder / "rabbitmq.conf").write_text(configuration(port))
        (folder / "plugins").write_text("[].")
        stack.enter_context(running("epmd", ["-address", HOST, "-port", str(names_port)], folder, names_port))
        chosen = [f"{name}={value}" for name, value in environment(folder, port, names_port).items()]
        process = stack.enter_context(running("env", [*chosen, str(program())], folder, port))
        yield Broker(process.pid, port)


RABBITMQ = Peer("rabbitmq", "classic durable queues, confirms, manual acks", _missing, start)
