"""Output of messages: text on a terminal, JSON lines in a pipe."""

import array
import asyncio
import fcntl
import os
import select
import stat
import sys
import termios
import time
from typing import Any

import orjson
from rich.text import Text

from relay.cli.answers import one_line
from relay.cli.visible import Console, unguarded, visible, words
from relay.client import Message

POLL_S = 0.002
IDLE_POLL_S = 0.1  # for a reader that takes its time, such as a pager
OPTIONAL = ("type", "thread", "reply_to", "headers", "signature")


class ReaderGone(Exception):
    """The reader of our output has ended."""


def as_json(message: Message[Any]) -> bytes:
    """One line, the payload as its sender wrote it."""
    delivery = message._delivery
    fields: dict[str, Any] = {name: value for name in OPTIONAL if (value := getattr(delivery, name)) is not None}
    fields |= {"entry": delivery.entry, "id": delivery.id, "from": delivery.sender, "seq": delivery.seq}
    fields |= {"priority": delivery.priority, "sent_at_ms": delivery.sent_at_ms, "attempt": delivery.attempt}
    fields |= {"expires_at_ms": delivery.expires_at_ms, "was_stored": delivery.was_stored}
    fields |= {"request": delivery.request, "payload": orjson.Fragment(one_line(message.raw))}
    return orjson.dumps(fields)


def as_text(message: Message[Any]) -> Text:
    """A message as a person reads it."""
    at = time.strftime("%H:%M:%S", time.localtime(message.sent_at_ms / 1_000))
    said = [message.type] if message.type else []
    said += [f"#{message.thread}"] if message.thread else []
    said += [f"attempt {message.attempt}"] if message.attempt > 1 else []
    said += [f"asks, reply with: relay reply {message.id} …"] if message.is_request else []
    payload = one_line(message.raw).decode(errors="replace")
    sender = message.sender.rpartition("/")[2]
    about = " ".join(said) + "  " if said else ""
    return words((at, "dim"), "  ", (sender, "bold cyan"), "  ", (about, "magenta"), payload)


class Screen:
    """Standard output. `show` returns when the message has left this process: on a terminal or in a file at once, in a
    pipe when its reader has taken it."""

    def __init__(self, pretty: bool | None = None) -> None:
        self._out = unguarded(sys.stdout).buffer
        self._pretty = sys.stdout.isatty() if pretty is None else pretty
        self._console = Console(soft_wrap=True)
        self._is_pipe = stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode)

    async def show(self, message: Message[Any]) -> None:
        """Raises ReaderGone; the message was then not seen."""
        if self._pretty:
            self._console.print(as_text(message))
        else:
            await self.line(as_json(message))

    async def tell(self, sentence: str, **fields: Any) -> None:
        """Something else: a sentence for people, one line of JSON for programs."""
        if self._pretty:
            # Further lines are indented: none looks like another sentence.
            self._console.print(*map(words, sentence.split("\n")), sep="\n  ")
        else:
            await self.line(orjson.dumps(fields))

    async def line(self, text: bytes) -> None:
        """JSON for a program, and no more than text for a terminal."""
        try:
            self._out.write(visible(text.decode()).encode() + b"\n")
            self._out.flush()
        except BrokenPipeError:
            raise self._gone() from None
        if self._is_pipe:
            await self._until_taken()

    async def _until_taken(self) -> None:
        """Data left in a pipe when its reader ends was written, but never read."""
        began = time.monotonic()
        while self._unread():
            if self._has_no_reader():
                raise self._gone()
            await asyncio.sleep(POLL_S if time.monotonic() - began < 1 else IDLE_POLL_S)

    def _unread(self) -> int:
        waiting = array.array("i", [0])
        fcntl.ioctl(self._out.fileno(), termios.FIONREAD, waiting)
        return waiting[0]

    def _has_no_reader(self) -> bool:
        poll = select.poll()
        poll.register(self._out.fileno(), 0)
        return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))

    def _gone(self) -> ReaderGone:
        """Python must not try to flush into nothing at its end."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ReaderGone()
