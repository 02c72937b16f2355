"""Mosquitto: MQTT 3.1.1 at QoS 1, a durable session for each recipient."""

import getpass
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Self

from bench.load import WINDOW
from bench.peers.connection import Connection
from bench.peers.peer import Closable, Count, Deliver, Letters, Peer, Sender
from bench.peers.programs import Processes, running, server_folder
from bench.peers.traffic import in_groups
from bench.servers import HOST, free_port

AS_PACKAGED_S, EVERY_SECOND_S = 1_800, 1  # how often everything is written to disk

CONNACK, PUBLISH, PUBACK, SUBACK = 0x20, 0x30, 0x40, 0x90
PUBLISH_QOS_1 = 0x32
DISCONNECT = b"\xe0\x00"
MOST_IDS = 65_535


def packet(first: int, body: bytes) -> bytes:
    size, digits = len(body), bytearray()
    while True:
        size, digit = size >> 7, size & 0x7F
        digits.append(digit | 0x80 if size else digit)
        if not size:
            return bytes((first, *digits)) + body


def connect(client: str) -> bytes:
    """Of a session that outlives the connection, without keep-alive."""
    return packet(0x10, b"\x00\x04MQTT\x04\x00\x00\x00" + _text(client))


def subscribe(topic: str) -> bytes:
    return packet(0x82, b"\x00\x01" + _text(topic) + b"\x01")


def publish(topic: bytes, packet_id: int, payload: bytes) -> bytes:
    return packet(PUBLISH_QOS_1, b"%b%b%b%b" % (len(topic).to_bytes(2), topic, packet_id.to_bytes(2), payload))


def puback(packet_id: bytes) -> bytes:
    return b"\x40\x02" + packet_id


def _text(text: str) -> bytes:
    return len(text).to_bytes(2) + text.encode()


def take_packets(data: bytes) -> tuple[list[tuple[int, bytes]], int]:
    """The complete packets, each as its kind and body, and how many bytes they had."""
    packets, at, end = [], 0, len(data)
    while end - at >= 2:
        size, shift, start = 0, 0, at + 1
        while start < end:
            digit = data[start]
            size |= (digit & 0x7F) << shift
            shift, start = shift + 7, start + 1
            if digit < 0x80:
                break
        else:
            break
        if end - start < size:
            break
        packets.append((data[at] & 0xF0, data[start : start + size]))
        at = start + size
    return packets, at


def published(body: bytes) -> tuple[bytes, bytes]:
    """Packet id and payload."""
    after = 2 + int.from_bytes(body[:2])
    return body[after : after + 2], body[after + 2 :]


class Client(Connection):
    """One MQTT client: it may send, and what comes to it is acked."""

    def __init__(self, confirmed: Count | None = None, delivered: Deliver | None = None) -> None:
        super().__init__()
        self._confirmed = confirmed
        self._delivered = delivered
        self._next_id = 0

    async def begin(self, port: int, name: str) -> Self:
        await self.connect(port)
        await self.ask(connect(name))
        return self

    def publish(self, letters: Letters) -> None:
        packets = []
        for to, payload in letters:
            self._next_id = self._next_id % MOST_IDS + 1
            packets.append(publish(b"to/%d" % to, self._next_id, payload))
        self.write(b"".join(packets))

    def _take(self, data: bytes) -> int:
        packets, used = take_packets(data)
        confirms, letters = 0, []
        for kind, body in packets:
            if kind == PUBACK:
                confirms += 1
            elif kind == PUBLISH:
                letters.append(published(body))
            elif kind in (CONNACK, SUBACK):
                self._answered()
        if confirms and self._confirmed:
            self._confirmed(confirms)
        if letters and self._delivered:
            self._delivered([payload for _, payload in letters])
            self.write(b"".join([puback(packet_id) for packet_id, _ in letters]))
        return used


class Broker(Processes):
    """A Mosquitto that listens on a port of its own."""

    tells_the_end = False

    def __init__(self, pid: int, port: int) -> None:
        super().__init__([pid])
        self._port = port

    async def declare(self, numbers: range) -> None:
        await in_groups(numbers, self._declare)

    async def _declare(self, number: int) -> None:
        client = await Client().begin(self._port, f"to-{number}")
        await client.ask(subscribe(f"to/{number}"))
        client.write(DISCONNECT)
        client.finish()

    async def sender(self, number: int, confirmed: Count, ended: Count) -> Sender:  # noqa: ARG002 - never told
        return await Client(confirmed=confirmed).begin(self._port, f"from-{number}")

    async def recipient(self, number: int, delivered: Deliver) -> Closable:
        return await Client(delivered=delivered).begin(self._port, f"to-{number}")


def configuration(port: int, folder: Path, autosave_s: int) -> str:
    return f"""
listener {port} {HOST}
allow_anonymous true
persistence true
persistence_location {folder}/
autosave_interval {autosave_s}
max_inflight_messages {WINDOW}
max_queued_messages 0
set_tcp_nodelay true
log_type error
log_dest stderr
user {getpass.getuser()}
"""


def _missing() -> str:
    return "" if shutil.which("mosquitto") else "mosquitto is not on the PATH: apt-get install mosquitto"


@contextmanager
def start(autosave_s: int) -> Iterator[Broker]:
    port = free_port()
    with server_folder() as folder:
        file = folder / "mosquitto.conf"
        file.write_text(configuration(port, folder, autosave_s))
        with running("mosquitto", ["-c", str(file)], folder, port) as process:
            yield Broker(process.pid, port)


MOSQUITTO = Peer("mosquitto", "MQTT QoS 1, saved every 30 minutes as packaged", _missing, partial(start, AS_PACKAGED_S))
MOSQUITTO_1S = Peer("mosquitto-1s", "MQTT QoS 1, saved every second", _missing, partial(start, EVERY_SECOND_S))
