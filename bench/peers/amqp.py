"""As much of AMQP 0-9-1 as a load program needs: frames out of bytes, bytes out of calls, no I/O."""

import struct

GREETING = b"AMQP\x00\x00\x09\x01"
METHOD, HEADER, BODY = 1, 2, 3
END = b"\xce"
NO_TABLE = b"\x00\x00\x00\x00"
DURABLE = b"\x02"
PERSISTENT = struct.pack(">HB", 0x1000, 2)  # the header has a delivery mode, and it is 2

Method = tuple[int, int]
START, TUNE, OPEN_OK, CLOSE = (10, 10), (10, 30), (10, 41), (10, 50)
CHANNEL_OPEN_OK, CHANNEL_CLOSE = (20, 11), (20, 40)
DECLARE_OK, QOS_OK, CONSUME_OK, SELECT_OK = (50, 11), (60, 11), (60, 21), (85, 11)
DELIVER, ACK = (60, 60), (60, 80)

_FRAME = struct.Struct(">BHI")
_METHOD = struct.Struct(">HH")
_TAG = struct.Struct(">Q")


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return _FRAME.pack(kind, channel, len(payload)) + payload + END


def method(of: Method, arguments: bytes, channel: int = 1) -> bytes:
    return frame(METHOD, channel, _METHOD.pack(*of) + arguments)


def short(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def start_ok(user: str, password: str) -> bytes:
    secret = f"\0{user}\0{password}".encode()
    answer = struct.pack(">I", len(secret)) + secret
    return method((10, 11), NO_TABLE + short("PLAIN") + answer + short("en_US"), channel=0)


def tune_ok(proposed: bytes) -> bytes:
    """As the server proposes, without heartbeats; and the default virtual host."""
    limits = proposed[:6] + b"\x00\x00"
    return method((10, 31), limits, channel=0) + method((10, 40), short("/") + short("") + b"\x00", channel=0)


def open_channel() -> bytes:
    return method((20, 10), short(""))


def select_confirms() -> bytes:
    return method((85, 10), b"\x00")


def qos(window: int) -> bytes:
    return method((60, 10), struct.pack(">IHB", 0, window, 0))


def declare(queue: str) -> bytes:
    return method((50, 10), b"\x00\x00" + short(queue) + DURABLE + NO_TABLE)


def consume(queue: str) -> bytes:
    return method((60, 20), b"\x00\x00" + short(queue) + short("") + b"\x00" + NO_TABLE)


def publish(queue: str, payload: bytes) -> bytes:
    """To the default exchange: the method, the header and the body."""
    header = struct.pack(">HHQ", 60, 0, len(payload)) + PERSISTENT
    call = method((60, 40), b"\x00\x00" + short("") + short(queue) + b"\x00")
    return call + frame(HEADER, 1, header) + frame(BODY, 1, payload)


def ack_up_to(tag: int) -> bytes:
    return method(ACK, _TAG.pack(tag) + b"\x01")


def take_frames(data: bytes) -> tuple[list[tuple[int, bytes]], int]:
    """The complete frames, each as its kind and payload, and how many bytes they had."""
    frames, at, end = [], 0, len(data)
    while end - at >= 8:
        kind, _, size = _FRAME.unpack_from(data, at)
        start = at + 7
        if end - start <= size:
            break
        frames.append((kind, data[start : start + size]))
        at = start + size + 1
    return frames, at


def method_of(payload: bytes) -> tuple[Method, bytes]:
    of: Method = _METHOD.unpack_from(payload)
    return of, payload[4:]


def delivery_tag(arguments: bytes) -> int:
    """Of `deliver`, where it comes after the consumer's name."""
    tag: int = _TAG.unpack_from(arguments, 1 + arguments[0])[0]
    return tag


class Confirms:
    """Counts what the broker confirms, one by one or up to a tag, in any order."""

    def __init__(self) -> None:
        self._all_up_to = 0
        self._beyond: set[int] = set()

    def add(self, arguments: bytes) -> int:
        """How many messages this `ack` confirms for the first time."""
        tag, is_multiple = _TAG.unpack_from(arguments)[0], arguments[8] & 1
        before = self._all_up_to + len(self._beyond)
        if is_multiple:
            self._all_up_to = max(self._all_up_to, tag)
            self._beyond = {one for one in self._beyond if one > tag}
        else:
            self._beyond.add(tag)
        while self._all_up_to + 1 in self._beyond:
            self._all_up_to += 1
            self._beyond.remove(self._all_up_to)
        return self._all_up_to + len(self._beyond) - before
