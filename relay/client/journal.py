"""The journal: a SQLite file on its own thread. Everything of one turn is one commit."""

import asyncio
import logging
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from relay.client.errors import OutboxFailed

log = logging.getLogger(__name__)

VACUUM_EVERY = 1_000  # commits between two looks at how many pages of the file are free
VACUUM_PAGES = 2_000  # given back at once: a few milliseconds
CLOSE_WITHIN_S = 10.0
WAL_LIMIT_BYTES = 4 * 2**20

SCHEMA = """
CREATE TABLE IF NOT EXISTS relay_outbox (
    serial INTEGER PRIMARY KEY,   -- the order of sending
    recipient TEXT NOT NULL,
    id TEXT NOT NULL,
    body BLOB NOT NULL,           -- the message as JSON, without its end
    deadline REAL NOT NULL,       -- Unix seconds
    not_before REAL NOT NULL,
    accepted INTEGER NOT NULL     -- 1: the relay has it, and it comes again only if the relay's store was wiped
);
CREATE TABLE IF NOT EXISTS relay_handled (
    serial INTEGER PRIMARY KEY,
    sender TEXT NOT NULL,
    id TEXT NOT NULL,
    reply BLOB                    -- what a request was answered with, to be said again
);
CREATE TABLE IF NOT EXISTS relay_pins (address TEXT PRIMARY KEY, key TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS relay_facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""

Row = tuple[Any, ...]
Statement = tuple[str, Row]


class Journal(Protocol):
    """Writes in order. `then` is called once everything before it is kept."""

    is_durable: bool

    def put(self, sql: str, row: Row) -> None: ...
    def unit(self, statements: list[Statement], failed: Callable[[Exception], None]) -> None: ...
    def then(self, kept: Callable[[], None]) -> None: ...
    async def rows(self, sql: str, row: Row = ()) -> list[Row]: ...
    async def kept(self) -> None: ...
    async def close(self) -> None: ...


class MemoryJournal:
    """Keeps nothing: for agents without a file."""

    is_durable = False

    def put(self, sql: str, row: Row) -> None:
        """Nothing is written."""

    def unit(self, statements: list[Statement], failed: Callable[[Exception], None]) -> None:
        if len(statements) > 1:
            failed(OutboxFailed("message.also needs an agent with an outbox file"))

    def then(self, kept: Callable[[], None]) -> None:
        kept()

    async def rows(self, sql: str, row: Row = ()) -> list[Row]:  # noqa: ARG002
        if "relay_" in sql:
            return []
        raise OutboxFailed("execute needs an agent with an outbox file")

    async def kept(self) -> None:
        """Nothing is waited for."""

    async def close(self) -> None:
        """Nothing is open."""


class _Batch:
    """What is committed together: statements in order, and who waits for it."""

    __slots__ = ("kept", "statements", "units")

    def __init__(self) -> None:
        self.statements: list[tuple[str, list[Row]]] = []
        self.units: list[tuple[list[Statement], Callable[[Exception], None]]] = []
        self.kept: list[Callable[[], None]] = []

    def is_empty(self) -> bool:
        return not (self.statements or self.units or self.kept)


class FileJournal:
    """A file that only this process has open (WAL, synchronous FULL)."""

    is_durable = True

    def __init__(self, path: Path, failed: Callable[[Exception], None]) -> None:
        self._path = path
        self._failed = failed  # told once, when the file cannot be written any more
        self._loop = asyncio.get_running_loop()
        self._batch = _Batch()
        self._flush_asked = False
        self._is_committing = False  # what comes meanwhile is committed together
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"journal {path.name}", daemon=True)
        self._commits = 0
        self._has_failed = False
        self._db: sqlite3.Connection

    async def open(self) -> None:
        """Raises OutboxFailed when the file is in use or is no such file."""
        opened: asyncio.Future[None] = self._loop.create_future()
        self._thread.start()
        self._work.put(lambda: self._answer(opened, self._open))
        try:
            await opened
        except BaseException:
            self._work.put(None)
            raise

    def _open(self) -> None:
        _keep_private(self._path)
        db = self._db = sqlite3.connect(self._path, isolation_level=None, timeout=0.2)
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute(f"PRAGMA journal_size_limit = {WAL_LIMIT_BYTES}")
        db.executescript(f"BEGIN EXCLUSIVE; {SCHEMA} COMMIT;")
        db.executescript("PRAGMA incremental_vacuum")  # execute would take a single step of it

    # -- on the event loop

    def put(self, sql: str, row: Row) -> None:
        statements = self._batch.statements
        if statements and statements[-1][0] is sql:
            statements[-1][1].append(row)
        else:
            statements.append((sql, [row]))
            self._ask_flush()

    def unit(self, statements: list[Statement], failed: Callable[[Exception], None]) -> None:
        """Statements that are executed all or none; `failed` is called if none. Others continue."""
        self._batch.units.append((statements, failed))
        self._ask_flush()

    def then(self, kept: Callable[[], None]) -> None:
        self._batch.kept.append(kept)
        self._ask_flush()

    def _ask_flush(self) -> None:
        if not self._flush_asked:
            self._flush_asked = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_asked = False
        if not self._is_committing:
            self._is_committing = True
            batch, self._batch = self._batch, _Batch()
            self._work.put(lambda: self._commit(batch))

    def _committed(self) -> None:
        self._is_committing = False
        if not self._batch.is_empty():
            self._flush()

    async def rows(self, sql: str, row: Row = ()) -> list[Row]:
        """The rows of a question, or of a statement of the user's own."""
        found: asyncio.Future[list[Row]] = self._loop.create_future()
        self._work.put(lambda: self._answer(found, lambda: self._db.execute(sql, row).fetchall()))
        return await found

    async def kept(self) -> None:
        """Returns when everything so far is on disk."""
        kept: asyncio.Future[None] = self._loop.create_future()
        self.then(lambda: _succeed(kept, None))
        await kept

    async def close(self) -> None:
        if not self._has_failed:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_WITHIN_S):
                    await self.kept()
        self._work.put(None)
        await asyncio.to_thread(self._thread.join)

    # -- on the thread

    def _run(self) -> None:
        while (step := self._work.get()) is not None:
            step()
        if hasattr(self, "_db"):
            self._db.close()

    def _answer(self, waiting: "asyncio.Future[Any]", step: Callable[[], Any]) -> None:
        try:
            value = step()
        except Exception as error:  # also what Python cannot make of a value, such as an OverflowError
            in_use = "it is in use, by another agent or process" if "locked" in str(error) else str(error)
            failure = OutboxFailed(f"{self._path}: {in_use}")
            self._tell([lambda: _fail(waiting, failure)])
        else:
            self._tell([lambda: _succeed(waiting, value)])

    def _commit(self, batch: _Batch) -> None:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            for sql, rows in batch.statements:
                self._db.executemany(sql, rows)
            told = [refused for unit in batch.units if (refused := self._unit(*unit)) is not None]
            self._db.execute("COMMIT")
            self._give_back_pages()
        except Exception as error:
            self._has_failed = True
            failure = OutboxFailed(f"{self._path}: {error}")
            self._tell([lambda: self._failed(failure)])
        else:
            self._tell([self._committed, *told, *batch.kept])

    def _unit(self, statements: list[Statement], failed: Callable[[Exception], None]) -> Callable[[], None] | None:
        self._db.execute("SAVEPOINT unit")
        try:
            for sql, row in statements:
                self._db.execute(sql, row)
        except Exception as error:
            self._db.execute("ROLLBACK TO unit")
            wrong = error
            return lambda: failed(wrong)
        finally:
            self._db.execute("RELEASE unit")
        return None

    def _give_back_pages(self) -> None:
        self._commits += 1
        if self._commits % VACUUM_EVERY == 0:
            self._db.executescript(f"PRAGMA incremental_vacuum({VACUUM_PAGES})")

    def _tell(self, callbacks: Iterable[Callable[[], object]]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_call_all, list(callbacks))


def _call_all(callbacks: list[Callable[[], object]]) -> None:
    """Who waits for a commit must not keep the others from hearing of it."""
    for callback in callbacks:
        try:
            callback()
        except Exception:
            log.exception("what follows a commit failed")


def _fail(waiting: "asyncio.Future[Any]", error: Exception) -> None:
    if not waiting.done():
        waiting.set_exception(error)


def _succeed(waiting: "asyncio.Future[Any]", value: Any) -> None:
    if not waiting.done():
        waiting.set_result(value)


def _keep_private(path: Path) -> None:
    """Only the owner reads the file and those that SQLite puts beside it, whatever the umask. Those get the modes of
    the file itself. A file that exists is not opened here: its close would take away the lock of who uses it."""
    path = path.resolve()
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    for suffix in ("", "-wal", "-shm", "-journal"):
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).chmod(0o600)


async def open_journal(path: str | Path | None, failed: Callable[[Exception], None]) -> Journal:
    """The file's journal, or one that keeps nothing."""
    if path is None:
        return MemoryJournal()
    journal = FileJournal(Path(path), failed)
    await journal.open()
    return journal
