"""Outgoing frames: joined and counted; writing never blocks."""

import asyncio
from collections.abc import Callable

from relay.core.output_budget import Output


class FrameWriter:
    """What is written in one turn of the event loop goes out in one piece."""

    __slots__ = ("_flushed", "_frames", "_output", "is_over", "transport")

    def __init__(self, output: Output, flushed: Callable[[], None]) -> None:
        self.transport: asyncio.Transport | None = None
        self.is_over = False  # the close frame is out: nothing is written any more
        self._output = output
        self._flushed = flushed  # told when what was written is in the socket
        self._frames: list[bytes] = []

    def write(self, frame: bytes) -> None:
        """Puts a frame in line."""
        if self.is_over:
            return
        if not self._frames:
            asyncio.get_running_loop().call_soon(self.flush)
        self._frames.append(frame)
        self._output.wrote(len(frame))

    def write_now(self, frame: bytes) -> None:
        """Before what is in line, and not counted."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(frame)

    def flush(self) -> None:
        frames, self._frames = self._frames, []
        if frames:
            self.write_now(frames[0] if len(frames) == 1 else b"".join(frames))
        self._output.flushed()
        self._flushed()

    def end(self, close_frame: bytes) -> None:
        """The last that goes out."""
        self.flush()
        self.is_over = True
        self.write_now(close_frame)
