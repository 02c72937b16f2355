"""Whatever a network makes of an answer or a connection, the client gets what it can handle, or an error it knows."""

import asyncio
import base64
import hashlib
import json
import re
import struct
from collections.abc import Callable, Iterator

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from relay.client.connection.link import Network
from tests.unit.client.mischief import BROKEN, STRANGE

EXAMPLES = max(100, settings.default.max_examples)  # `make soak` asks for more
EXPECTED = (OSError, aiohttp.ClientError)  # what whoever calls or connects is ready for
WITHIN_S = 5.0  # nothing is waited for here: the server says all it has and hangs up
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

Answer = Callable[[bytes], bytes]  # what to say to the head of a request


class Wire:
    """A server that says to each connection what it is told, and hangs up."""

    def __init__(self) -> None:
        self.answer: Answer = lambda _: b""
        self._runner = asyncio.Runner()
        self._server = self._runner.run(self._start())
        self.url = "http://{}:{}".format(*self._server.sockets[0].getsockname())

    async def _start(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            writer.write(self.answer(head))
            writer.write_eof()
            await reader.read()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def call(self, answer: Answer) -> object:
        self.answer = answer
        return self._runner.run(self._call())

    async def _call(self) -> object:
        network = Network(self.url)
        try:
            async with asyncio.timeout(WITHIN_S):
                return await network.call("GET", self.url, "/v1/agents/eve", "e30.e30.e30")
        except TimeoutError:
            raise AssertionError("the client waits") from None
        except EXPECTED:
            return None
        finally:
            await network.close()

    def converse(self, answer: Answer) -> list[bytes | str | None]:
        self.answer = answer
        return self._runner.run(self._converse())

    async def _converse(self) -> list[bytes | str | None]:
        """All that is heard on one connection, to its end."""
        network, heard = Network(self.url), []
        try:
            async with asyncio.timeout(WITHIN_S):
                link = await network.connect(self.url)
                link.write(b'{"op":"ping"}')
                while (text := await link.receive()) is not None:
                    heard.append(text)
                await link.close()
        except TimeoutError:
            raise AssertionError("the client waits") from None
        except EXPECTED:
            pass
        finally:
            await network.close()
        return [*heard]

    def close(self) -> None:
        self._server.close()
        self._runner.close()


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    wire = Wire()
    yield wire
    wire.close()


# -- calls

BODIES = st.sampled_from(
    [
        *(
            b"",
            b"{}",
            b"[]",
            b"null",
            b'"x"',
            b'{"error":5}',
            b'{"error":{"code":[]}}',
            b'{"state":{}}',
            b"<html>",
            b"\xff",
        ),
        *(b'{"n":' + bytes(odd) + b"}" for odd in (*STRANGE, *BROKEN)),
    ]
)
KINDS = st.sampled_from(["application/json", "application/json; charset=no", "text/html", "", "é", "a/b;;=", "*"])
STATUSES = st.sampled_from([100, 101, 200, 204, 206, 301, 304, 400, 401, 404, 418, 429, 500, 503, 599, 999, 0, -1])
LENGTHS = st.sampled_from(["right", "right", "0", "-1", "99999999", "x", "no", "chunked", "twice"])


@st.composite
def answers(draw: DrawFn) -> bytes:
    """An answer over HTTP, or what is left of it."""
    body, kind, length = draw(BODIES), draw(KINDS), draw(LENGTHS)
    lines = [
        f"HTTP/1.1 {draw(STATUSES)} {draw(st.sampled_from(['', 'OK', 'é', 'x' * 9_000]))}",
        f"Content-Type: {kind}",
    ]
    lines += {
        "right": [f"Content-Length: {len(body)}"],
        "no": [],
        "chunked": ["Transfer-Encoding: chunked"],
        "twice": ["Content-Length: 1", "Content-Length: 2"],
    }.get(length, [f"Content-Length: {length}"])
    lines += draw(
        st.lists(
            st.sampled_from(["Location: /x", "Location: file:///x", "Content-Encoding: gzip", "x", "Set-Cookie: =;="])
        )
    )
    text = "\r\n".join(lines).encode() + b"\r\n\r\n" + body
    return text[: draw(st.integers(0, len(text)))] if draw(st.booleans()) else text


def test_any_answer_over_http_is_an_object_or_an_error_that_is_known(wire: Wire) -> None:
    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(answers() | st.binary(max_size=60))
    def example(answer: bytes) -> None:
        found = wire.call(lambda _: answer)
        if found is not None:
            status, body = found  # type: ignore[misc]
            assert isinstance(status, int)
            assert isinstance(body, dict)

    example()


# -- connections


def accept(head: bytes) -> bytes:
    """The right answer to an upgrade."""
    found = re.search(rb"Sec-WebSocket-Key: (\S+)", head, re.IGNORECASE)
    key = base64.b64encode(hashlib.sha1((found[1] if found else b"") + GUID).digest())
    upgraded = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    return upgraded + b"Sec-WebSocket-Accept: " + key + b"\r\n\r\n"


def framed(first: int, payload: bytes, size: int | None = None) -> bytes:
    """A frame of the WebSocket protocol. Its size may be a lie."""
    size = len(payload) if size is None else size
    if size < 126:
        return bytes([first, size]) + payload
    return (
        bytes([first, 126]) + struct.pack(">H", size) + payload
        if size < 2**16
        else bytes([first, 127]) + struct.pack(">Q", size) + payload
    )


TEXTS = st.sampled_from([b"{}", b'{"op":"hello"}', b"\xff\xfe", b"", b"x" * 70_000])
FIRST = st.sampled_from([0x81, 0x81, 0x82, 0x01, 0x00, 0x80, 0x89, 0x8A, 0x88, 0xF1, 0x83, 0xC1, 0x08])
CODES = st.sampled_from([0, 999, 1000, 1001, 1005, 1006, 1009, 3000, 4000, 4499, 5000, 65_535])
SIZES = st.sampled_from([None, None, None, 0, 125, 127, 2**16, 2**28 + 1, 2**63 - 1, 2**63, 2**64 - 1])


@st.composite
def streams(draw: DrawFn) -> bytes:
    """Frames, of which the last may be cut off."""
    closing = st.builds(
        lambda code, why: framed(0x88, struct.pack(">H", code) + why), CODES, st.sampled_from([b"", b"\xff"])
    )
    frames = draw(st.lists(st.builds(framed, FIRST, TEXTS, SIZES) | closing | st.binary(max_size=20), max_size=5))
    text = b"".join(frames)
    return text[: draw(st.integers(0, len(text)))] if draw(st.booleans()) else text


def test_any_bytes_on_a_connection_are_frames_or_its_end(wire: Wire) -> None:
    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(streams())
    def example(stream: bytes) -> None:
        heard = wire.converse(lambda head: accept(head) + stream)
        assert all(isinstance(text, bytes | str) for text in heard)

    example()


def test_any_answer_to_an_upgrade_is_a_connection_or_an_error_that_is_known(wire: Wire) -> None:
    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(answers() | st.binary(max_size=60), st.integers(0, 200))
    def example(answer: bytes, cut: int) -> None:
        wire.converse(lambda _: answer)
        wire.converse(lambda head: accept(head)[:cut])
        wire.converse(lambda head: accept(head).replace(b"=\r\n", json.dumps("x").encode() + b"\r\n"))

    example()
