"""aiohttp calls what relay/server/aiohttp_parts.py overrides. Shown on the real classes, without a network."""

import asyncio
import base64
from typing import Any

import aiohttp
from aiohttp import web

from relay.server.aiohttp_parts import FrameBuffer, FramedSocket, PacedConnection, WebSocketReader, WrappingRunner
from tests.deaf import text_frame


class Wire(asyncio.Transport):
    """A transport that goes nowhere."""

    def __init__(self) -> None:
        super().__init__()
        self.paused = self.resumed = 0

    def pause_reading(self) -> None:
        self.paused += 1

    def resume_reading(self) -> None:
        self.resumed += 1

    def write(self, data: Any) -> None: ...

    def is_closing(self) -> bool:
        return False

    def close(self) -> None: ...


class Paced(PacedConnection):
    """Notes what aiohttp asks of it."""

    asked = 0
    finished: tuple[Any, ...] = ()

    def resume_transport(self) -> None:
        self.asked += 1
        super().resume_transport()

    async def finish_response(self, request: Any, resp: Any, start_time: Any) -> Any:
        self.finished = request, resp
        return await super().finish_response(request, resp, start_time)


GET = b"GET / HTTP/1.1\r\nHost: relay\r\n\r\n"
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: relay\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %b\r\n\r\n" % base64.b64encode(bytes(16))
)
POST = b"POST / HTTP/1.1\r\nHost: relay\r\nContent-Length: 9000000\r\n\r\n"


async def forever(_: web.BaseRequest) -> web.Response:
    await asyncio.Event().wait()
    return web.Response()


async def until(condition: Any) -> None:
    """Lets the event loop go round until something holds."""
    for _ in range(100):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never holds")


class Served:
    """One connection to a handler, without a network."""

    def __init__(self, handler: Any) -> None:
        self.made: list[tuple[Any, ...]] = []
        self.server = web.Server(handler, request_factory=self.make, handler_cancellation=True)
        self.connection = Paced(self.server, loop=asyncio.get_running_loop(), access_log=None)
        self.wire = Wire()
        self.connection.connection_made(self.wire)

    def make(self, message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
        self.made.append((message, payload, protocol, writer, task))
        return web.BaseRequest(message, payload, protocol, writer, task, asyncio.get_running_loop())

    async def end(self) -> None:
        self.connection.connection_lost(None)
        await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})


async def test_all_that_is_read_on_is_asked_for_in_one_place() -> None:
    served = Served(forever)
    connection = served.connection
    connection.data_received(POST)

    connection.pause_reading()
    assert connection.is_paused()
    connection.resume_reading()

    assert not connection.is_paused()
    assert (connection.asked, served.wire.resumed) == (1, 1)
    await served.end()


async def test_a_transport_is_paused_and_resumed_without_aiohttp_knowing() -> None:
    served = Served(forever)

    served.connection.pause_transport()
    served.connection.resume_transport()

    assert (served.wire.paused, served.wire.resumed) == (1, 1)
    assert not served.connection.is_paused()
    await served.end()


async def test_a_buffer_that_is_full_pauses_and_one_that_is_drained_asks_to_be_read_on() -> None:
    go_on = asyncio.Event()

    async def handle(_: web.BaseRequest) -> web.Response:
        await go_on.wait()
        return web.Response()

    served = Served(handle)
    connection = served.connection
    await asyncio.sleep(0)

    while not connection.is_paused():
        connection.data_received(GET)
    assert connection.asked == 0
    go_on.set()
    await until(lambda: not connection.is_paused())

    assert connection.asked == 1
    await served.end()


async def test_a_body_that_nobody_reads_pauses() -> None:
    served = Served(forever)
    served.connection.data_received(POST)
    await until(lambda: served.made)

    served.connection.data_received(bytes(2**20))

    assert served.connection.is_paused()
    await served.end()


async def test_a_request_is_made_with_its_connection_and_its_response_is_finished_by_it() -> None:
    async def handle(_: web.BaseRequest) -> web.Response:
        return web.Response()

    served = Served(handle)
    await asyncio.sleep(0)

    served.connection.data_received(GET)
    await until(lambda: served.connection.finished)

    assert served.made[0][2] is served.connection
    assert isinstance(served.connection.finished[0], web.BaseRequest)
    assert isinstance(served.connection.finished[1], web.Response)
    await served.end()


class NotedBuffer(FrameBuffer):
    """Notes what goes through it."""

    def __init__(self, connection: Any, limit: int, *, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(connection, limit, loop=loop)
        self.fed: list[Any] = []
        self.reads = 0

    def feed_data(self, data: Any, size: int) -> None:
        self.fed.append(data)
        super().feed_data(data, size)

    async def read(self) -> Any:
        self.reads += 1
        return await super().read()


class NotedReader(WebSocketReader):
    def __init__(self, frames: FrameBuffer, max_bytes: int) -> None:
        super().__init__(frames, max_bytes, compress=False, decode_text=False)
        self.fed: list[bytes] = []

    def feed_data(self, data: Any) -> tuple[bool, bytes]:
        self.fed.append(bytes(data))
        return super().feed_data(data)


class NotedSocket(FramedSocket):
    opened: tuple[Any, ...] = ()
    buffer: NotedBuffer
    reader: NotedReader

    def open_frames(self, connection: Any, max_bytes: int, loop: Any) -> tuple[NotedBuffer, NotedReader]:
        assert not self.opened
        self.opened = connection, max_bytes, loop
        self.buffer = NotedBuffer(connection, 1_000, loop=loop)
        self.reader = NotedReader(self.buffer, max_bytes)
        return self.buffer, self.reader


async def test_the_frames_of_a_socket_go_through_our_reader_and_our_buffer() -> None:
    socket = NotedSocket(max_msg_size=500, compress=False, decode_text=False)
    received: list[Any] = []

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        assert socket.transport() is None
        await socket.prepare(request)
        received.append(await socket.receive())
        return socket

    served = Served(handle)
    await asyncio.sleep(0)

    served.connection.data_received(UPGRADE)
    await until(lambda: socket.opened)
    await asyncio.sleep(0)
    served.connection.data_received(text_frame(b"one"))
    await until(lambda: received)

    assert socket.opened == (served.connection, 500, asyncio.get_running_loop())
    assert socket.reader.fed == [text_frame(b"one")]
    assert [frame.data for frame in socket.buffer.fed] == [b"one"] == [frame.data for frame in received]
    assert socket.buffer.reads > 0
    assert socket.transport() is served.wire
    await served.end()


async def test_a_buffer_knows_its_frames_and_pauses_its_connection_when_they_are_too_many() -> None:
    served = Served(forever)
    served.connection.data_received(POST)
    buffer = FrameBuffer(served.connection, 1_000, loop=asyncio.get_running_loop())

    assert not buffer.has_frames()
    buffer.feed_data(aiohttp.WSMessage(aiohttp.WSMsgType.TEXT, bytes(10_000), None), 10_000)

    assert buffer.has_frames()
    assert served.connection.is_paused()
    await buffer.read()
    assert not buffer.has_frames()
    assert not served.connection.is_paused()
    await served.end()


async def test_an_application_runs_on_the_server_that_we_make() -> None:
    class Wrapped(web.Server): ...

    class Wrapping(WrappingRunner):
        def wrap(self, server: web.Server) -> web.Server:
            assert server.request_factory is not None
            return Wrapped(server.request_handler, request_factory=server.request_factory)

    runner = Wrapping(web.Application())

    await runner.setup()

    assert isinstance(runner.server, Wrapped)
    await runner.cleanup()
