"""What the relay relies on in aiohttp's private parts, checked on the aiohttp that is installed.

Without this an override that aiohttp no longer calls would be noticed by nobody.
"""

import ast
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
from relay.server.aiohttp_parts import FrameBuffer, FramedSocket, PacedConnection, WrappingRunner
from relay.server.connections import Runner, Server, ServerConnection
from relay.server.framing import FrameQueue, MaskedReader, Socket

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


# -- what ours were made from


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


def test_the_start_of_a_socket_is_still_what_ours_was_made_from() -> None:
    theirs = tree_of(vars(web.WebSocketResponse)["_post_start"])

    assert ast.dump(theirs) == ast.dump(ast.parse(POST_START)), "bring FramedSocket._post_start up to it"


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
