"""The connection itself: what comes over it, in clear and over TLS, and how its end is noticed."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from redis.exceptions import ResponseError

from relay.store.redis.resp import encode_command
from relay.store.redis.servers.connect import home_at
from relay.store.redis.servers.wire import Reply, Wire
from tests.builders import WAIT_S
from tests.servers import HOST, RealServer


class Listener:
    """Keeps what a wire hears, and lets tests wait for it."""

    def __init__(self) -> None:
        self.replies: asyncio.Queue[Reply] = asyncio.Queue()
        self.lost: asyncio.Queue[Exception] = asyncio.Queue()
        self.wire = Wire(self.replies.put_nowait, self.lost.put_nowait)

    async def open(self, url: str) -> Wire:
        await self.wire.open(home_at(url))
        return self.wire

    async def next(self, count: int) -> list[Reply]:
        async with asyncio.timeout(WAIT_S):
            return [await self.replies.get() for _ in range(count)]

    async def end(self) -> Exception:
        async with asyncio.timeout(WAIT_S):
            return await self.lost.get()


def certified(folder: Path) -> ssl.SSLContext:
    """The side of a server that signs for itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = folder / "server.pem"
    file.write_bytes(private + made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


@asynccontextmanager
async def answering(answer: bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A server that says the same to whatever comes; its port. It ends after its clients."""
    served: list[asyncio.Event] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(done := asyncio.Event())
        while line := await reader.readline():
            if line.startswith(b"*"):
                writer.write(answer)
        writer.close()
        await writer.wait_closed()
        done.set()

    server = await asyncio.start_server(serve, HOST, 0, ssl=tls)
    async with server:
        yield server.sockets[0].getsockname()[1]
        async with asyncio.timeout(WAIT_S):
            await asyncio.gather(*(one.wait() for one in served))


async def test_replies_come_in_the_order_of_the_commands(redis_server: RealServer) -> None:
    listener = Listener()
    wire = await listener.open(redis_server.url)

    wire.write(encode_command("ECHO", "a") + encode_command("NOSUCH") + encode_command("ECHO", "b" * 100_000))
    first, refused, last = await listener.next(3)
    await wire.close()

    assert first == b"a"
    assert isinstance(refused, ResponseError)
    assert last == b"b" * 100_000


async def test_tls_is_spoken_like_the_rest(tmp_path: Path) -> None:
    listener = Listener()
    async with answering(b"+OK\r\n", certified(tmp_path)) as port:
        wire = await listener.open(f"rediss://localhost:{port}?ssl_cert_reqs=none&ssl_check_hostname=false")
        wire.write(encode_command("ECHO", "a") * 3)
        replies = await listener.next(3)
        await wire.close()

    assert replies == [b"OK"] * 3


async def test_a_connection_that_is_cut_is_noticed_at_once() -> None:
    with RealServer() as server:
        listener = Listener()
        wire = await listener.open(server.url)
        server.kill()
        error = await listener.end()

    assert isinstance(error, Exception)
    assert not wire.is_open
    await wire.close()


async def test_what_is_no_reply_ends_the_connection() -> None:
    listener = Listener()
    async with answering(b"+OK\r\n") as port:
        wire = await listener.open(f"redis://{HOST}:{port}")
        wire.data_received(b"HTTP/1.1 400 Bad Request\r\n")
        error = await listener.end()
        await wire.close()

    assert "HTTP" in str(error) or "Protocol error" in str(error)
    assert not wire.is_open


async def test_who_closes_hears_nothing_more(redis_server: RealServer) -> None:
    listener = Listener()
    wire = await listener.open(redis_server.url)

    await wire.close()
    wire.data_received(b"+OK\r\n")
    wire.connection_lost(None)

    assert listener.replies.empty()
    assert listener.lost.empty()


async def test_a_server_that_is_not_there_is_an_error() -> None:
    listener = Listener()

    with pytest.raises(Exception, match=r"[Cc]onnect"):
        await listener.open(f"redis://{HOST}:1")
    await listener.wire.close()

    assert not listener.wire.is_open
