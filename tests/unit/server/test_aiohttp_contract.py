"""What the relay relies on in aiohttp's private parts, checked on the aiohttp that is installed.

Without this an override that aiohttp no longer calls would be noticed by nobody.
"""

import ast
import asyncio
import base64
import inspect
import pkgutil
import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp._websocket import reader_py

import relay
from relay.client.connection.link import Socket as ClientSocket
from relay.server import aiohttp_parts
from relay.server.aiohttp_parts import FrameBuffer, FramedSocket, PacedConnection, WebSocketReader, WrappingRunner
from relay.server.connections import Runner, Server, ServerConnection
from relay.server.framing import FrameQueue, MaskedReader, Socket
from tests.deaf import text_frame

ROOT = Path(relay.__file__).parent
AIOHTTP = Path(aiohttp.__file__).parent

OVERRIDES: dict[type, set[str]] = {
    PacedConnection: {"resume_reading", "_resume_transport_reading"},
    ServerConnection: {
        *("connection_made", "connection_lost", "data_received", "pause_writing", "resume_writing"),
        "finish_response",
    },
    Server: {"__call__"},
    WrappingRunner: {"_make_server"},
    Runner: set(),
    FrameBuffer: set(),
    FrameQueue: {"feed_data", "read"},
    MaskedReader: {"feed_data"},
    FramedSocket: {"_post_start", "_ws_protocol", "_writer", "_reader", "_parser"},
    Socket: {"close"},
    ClientSocket: set(),
}

POST_START = """
def _post_start(self, request: BaseRequest, protocol: str | None, writer: WebSocketWriter) -> None:
    self._ws_protocol = protocol
    self._writer = writer
    self._reset_heartbeat()
    loop = self._loop
    assert loop is not None
    self._reader = WebSocketDataQueue(request._protocol, DEFAULT_CHUNK_SIZE, loop=loop)
    self._parser = WebSocketReader(self._reader, self._max_msg_size, compress=bool(self._compress), \
decode_text=self._decode_text)
    cb = None if self._heartbeat is None else self._on_data_received
    request.protocol.set_parser(self._parser, data_received_cb=cb)
    request.protocol.keep_alive(False)
"""


# -- what overrides what


def as_python(cls: type) -> type:
    """The source of a compiled class."""
    return getattr(reader_py, cls.__name__, cls) if "_websocket" in cls.__module__ else cls


def tree_of(thing: Any) -> ast.AST:
    return ast.parse(textwrap.dedent(inspect.getsource(thing)))


def set_on_self(cls: type) -> set[str]:
    """Names of the attributes that the methods of a class set."""
    return {
        node.attr
        for node in ast.walk(tree_of(cls))
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }


def of_aiohttp(cls: type) -> list[type]:
    return [as_python(base) for base in cls.__mro__ if base.__module__.partition(".")[0] == "aiohttp"]


def names_of(bases: list[type]) -> set[str]:
    return {name for base in bases for name in (*vars(base), *set_on_self(base))}


def defined(cls: type) -> set[str]:
    names = {*vars(cls), *set_on_self(cls)}
    return {name for name in names - {"_abc_impl"} if not name.startswith("__") or name == "__call__"}


@pytest.mark.parametrize("cls", OVERRIDES)
def test_a_class_redefines_what_it_means_to_and_nothing_by_chance(cls: type) -> None:
    assert defined(cls) & names_of(of_aiohttp(cls)) == OVERRIDES[cls]


@pytest.mark.parametrize(
    ("cls", "name"),
    [
        (cls, name)
        for cls, names in OVERRIDES.items()
        for name in sorted(names)
        if isinstance(vars(cls).get(name), FunctionType)
    ],
)
def test_an_override_takes_what_aiohttp_hands_it(cls: type, name: str) -> None:
    theirs = next(vars(base)[name] for base in of_aiohttp(cls) if name in vars(base))

    assert shape(vars(cls)[name]) == shape(theirs)


def shape(function: Any) -> tuple[bool, list[tuple[str, Any]]]:
    parameters = inspect.signature(function).parameters.values()
    return inspect.iscoroutinefunction(function), [(one.name, one.kind) for one in parameters]


def test_every_class_on_top_of_aiohttp_is_held_to_this_contract() -> None:
    assert {cls for module in modules() for cls in classes_of(module) if needs_contract(cls)} == set(OVERRIDES)


def needs_contract(cls: type) -> bool:
    return any(
        base in (web.RequestHandler, web.Server, web.AppRunner, web.WebSocketResponse) for base in cls.__mro__
    ) or (any("_websocket" in base.__module__ or "client_ws" in base.__module__ for base in cls.__mro__))


# -- that overrides are called


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


def test_aiohttp_resumes_a_transport_of_its_server_nowhere_else() -> None:
    found = {
        (path.name, function.name)
        for path in AIOHTTP.glob("*.py")
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and node.attr == "resume_reading" and "transport" in ast.unparse(node.value)
    }

    assert found == {("base_protocol.py", "_resume_transport_reading")}


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


def test_the_start_of_a_socket_is_still_what_ours_was_made_from() -> None:
    theirs = tree_of(vars(web.WebSocketResponse)["_post_start"])

    assert ast.dump(theirs) == ast.dump(ast.parse(POST_START)), "bring FramedSocket._post_start up to it"


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


def test_the_client_hands_its_socket_the_response() -> None:
    """The relay's own takes the transport from there."""
    (call,) = (
        node
        for node in ast.walk(tree_of(aiohttp.ClientSession))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "self._ws_response_class"
    )

    assert [ast.unparse(one) for one in call.args[:4]] == ["reader", "writer", "protocol", "resp"]
    assert isinstance(aiohttp.ClientResponse.connection, property)
    assert isinstance(aiohttp.connector.Connection.transport, property)


# -- that nothing else is used


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_names_of_aiohttp() -> set[str]:
    """Of every attribute and method of its classes."""
    found: set[str] = set()
    for path in AIOHTTP.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found.add(node.name)
            elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self":
                found.add(node.attr)
    return {name for name in found if private(name)}


def modules() -> Iterator[Any]:
    for module in pkgutil.walk_packages(relay.__path__, "relay."):
        if not module.name.endswith("__main__"):
            yield import_module(module.name)


def classes_of(module: Any) -> list[type]:
    return [one for one in vars(module).values() if inspect.isclass(one) and one.__module__ == module.__name__]


def private_imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "aiohttp":
            paths = [f"{node.module}.{name.name}" for name in node.names]
        elif isinstance(node, ast.Import):
            paths = [name.name for name in node.names if name.name.partition(".")[0] == "aiohttp"]
        else:
            continue
        yield from (path for path in paths if any(private(part) for part in path.split(".")))


def of_another(tree: ast.AST, names: set[str]) -> Iterator[str]:
    """Private names of aiohttp on anything but self."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in names and ast.unparse(node.value) not in ("self", "cls"):
            yield ast.unparse(node)


def of_its_bases(cls: type) -> Iterator[str]:
    """Private names of aiohttp's classes on the self of a class that extends them."""
    names = {name for name in names_of(of_aiohttp(cls)) if private(name)}
    for node in ast.walk(tree_of(cls)):
        if isinstance(node, ast.Attribute) and node.attr in names and ast.unparse(node.value) in ("self", "super()"):
            yield ast.unparse(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in names:
            yield node.name


def uses(module: Any, names: set[str]) -> list[str]:
    tree = ast.parse(inspect.getsource(module))
    found = [*private_imports(tree)]
    if "aiohttp" in {name.partition(".")[0] for name in imported(tree)}:
        found += of_another(tree, names)
    return [*found, *(use for cls in classes_of(module) if of_aiohttp(cls) for use in of_its_bases(cls))]


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def test_no_other_module_touches_a_private_name_of_aiohttp() -> None:
    names = private_names_of_aiohttp()

    found = {module.__name__: used for module in modules() if (used := uses(module, names))}

    assert set(found) == {aiohttp_parts.__name__}, found
