"""Outcomes of an accept."""

from typing import Any, ClassVar

from msgspec import Struct


class Stored(Struct, frozen=True, gc=False):
    """It is in the mailbox."""

    word: ClassVar = "stored"
    entry: str
    seq: int


class Duplicate(Struct, frozen=True, gc=False):
    """The message is in the mailbox (`ended` is empty), or was recently: `ended` says how it ended, `attempt` when."""

    word: ClassVar = "duplicate"
    entry: str
    ended: str
    attempt: int


class Blocked(Struct, frozen=True, gc=False):
    """The recipient has blocked the sender. The sender must not know, and gets the same answer as for Stored."""

    word: ClassVar = "blocked"
    entry: str
    seq: int


class Full(Struct, frozen=True, gc=False):
    """The mailbox is full. `pace_ms` is the time per ack, -1 if unknown."""

    word: ClassVar = "full"
    depth: int
    bytes: int
    pace_ms: int
    is_online: int
    max_messages: int
    max_bytes: int


class Rationed(Struct, frozen=True, gc=False):
    """The sender or its tenant has begun too many threads or mailboxes; see accept.lua."""

    word: ClassVar = "rationed"
    ration: int  # 1 threads, 2 mailboxes of the sender, 3 mailboxes of the tenant
    retry_after_ms: int


class Unknown(Struct, frozen=True, gc=False):
    """No such agent is registered."""

    word: ClassVar = "unknown"


class Unavailable(Struct, frozen=True, gc=False):
    """The store did not answer: it may or may not be stored."""

    word: ClassVar = "unavailable"
    message: str


AcceptOutcome = Stored | Duplicate | Blocked | Full | Rationed | Unknown | Unavailable


def accept_outcome(row: list[Any]) -> AcceptOutcome:
    """One result of accept.lua."""
    match row[0]:
        case b"stored":
            return Stored(row[1].decode(), row[2])
        case b"duplicate":
            return Duplicate(row[1].decode(), row[2].decode(), row[3])
        case b"blocked":
            return Blocked(row[1].decode(), row[2])
        case b"full":
            return Full(*row[1:])
        case b"rationed":
            return Rationed(*row[1:])
        case _:
            return Unknown()
