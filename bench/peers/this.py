"""This relay: two instances, agents on WebSockets, a receipt for every message."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import orjson

from bench.load import BATCH, WINDOW
from bench.peers.peer import Closable, Count, Deliver, Letters, Peer, Sender
from bench.peers.traffic import in_groups
from bench.sockets import LoadSocket, connect
from bench.stand import Stand, resident_bytes, stand
from relay.auth import Tokens

OPENED_PER_S = "100000"  # ten thousand come at once


def frame(letters: Letters) -> bytes:
    """One `send`. A payload's two quotes are the last two of its bytes."""
    messages = [
        b'{"id":"%b","to":"bench/to-%d","payload":"%b"}' % (payload[:15], to, payload[:-2]) for to, payload in letters
    ]
    return b'{"op":"send","messages":[%b]}' % b",".join(messages)


class Speaker:
    """A sender: its confirms are `accepted` frames, its ends are receipts."""

    def __init__(self, confirmed: Count, ended: Count) -> None:
        self._confirmed = confirmed
        self._ended = ended
        self.socket: LoadSocket | None = None

    def publish(self, letters: Letters) -> None:
        assert self.socket is not None
        self.socket.send(frame(letters))

    def received(self, socket: LoadSocket, frame: dict[str, Any]) -> None:
        match frame["op"]:
            case "accepted":
                self._confirmed(len(frame["ids"]) + len(frame["duplicate_ids"]))
            case "receipts":
                socket.send(orjson.dumps({"op": "receipts_ack", "cursor": frame["cursor"]}))
                self._ended(len(frame["receipts"]))
            case "refused" | "error":
                raise ConnectionError(str(frame))

    def close(self) -> None:
        assert self.socket is not None
        self.socket.close()


def listener(delivered: Deliver) -> Callable[[LoadSocket, dict[str, Any]], None]:
    def received(socket: LoadSocket, frame: dict[str, Any]) -> None:
        if frame["op"] != "deliver":
            return
        messages = frame["messages"]
        delivered([message["payload"] for message in messages])
        for start in range(0, len(messages), BATCH):
            entries = [message["entry"] for message in messages[start : start + BATCH]]
            socket.send(orjson.dumps({"op": "ack", "entries": entries}))

    return received


class Relay:
    tells_the_end = True

    def __init__(self, there: Stand) -> None:
        self._there = there
        self._tokens = Tokens(there.settings)

    def cpu_s(self) -> float:
        return sum(self._there.cpu_s())

    def resident_bytes(self) -> int:
        return sum(map(resident_bytes, [self._there.server_pid, *self._there.instance_pids]))

    async def declare(self, numbers: range) -> None:
        await in_groups(numbers, self._declare)

    async def _declare(self, number: int) -> None:
        (await self._connect(f"to-{number}", number // 2, lambda *_: None)).close()

    async def sender(self, number: int, confirmed: Count, ended: Count) -> Sender:
        speaker = Speaker(confirmed, ended)
        speaker.socket = await self._connect(f"from-{number}", number, speaker.received)
        return speaker

    async def recipient(self, number: int, delivered: Deliver) -> Closable:
        """On the other instance for half of the pairs, so that half of their messages cross."""
        return await self._connect(f"to-{number}", number // 2, listener(delivered))

    async def _connect(self, name: str, at: int, received: Any) -> LoadSocket:
        token = self._tokens.make(f"bench/{name}", "send receive", 3_600)
        ports = self._there.ports
        return await connect(ports[at % len(ports)], token, received, window=WINDOW)


@contextmanager
def start() -> Iterator[Relay]:
    with stand(fsync="everysec", sessions_per_s=OPENED_PER_S) as there:
        yield Relay(there)


THIS_RELAY = Peer("relay", "accepted, ack, receipt; two instances, everysec", lambda: "", start)
