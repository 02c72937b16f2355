"""Server-Sent Events: a response that goes on."""

import time

from aiohttp import web

from relay.http.long_poll import has_gone

KEEP_ALIVE_S = 15.0
PIECE_BYTES = 65_536


class EventStream:
    """One follower. What is written waits for a slow reader, and ends when it has gone."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self._response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
        self._written_at = time.monotonic()

    @property
    def last_event_id(self) -> str:
        """The last event that this follower has seen; empty if it has seen none."""
        return self._request.headers.get("Last-Event-ID", "").strip()

    @property
    def is_read(self) -> bool:
        return not has_gone(self._request)

    async def open(self) -> None:
        await self._response.prepare(self._request)

    async def send(self, event: str, data: bytes, event_id: str | None = None) -> None:
        """One event; without an id the follower's place stays where it is."""
        self._written_at = time.monotonic()
        place = b"id: %b\n" % event_id.encode() if event_id is not None else b""
        lines = b"\ndata: ".join(data.splitlines())  # agents may write their JSON over several lines
        await self._response.write(b"%bevent: %b\ndata: %b\n\n" % (place, event.encode(), lines))

    async def send_frames(self, frames: bytes) -> None:
        """Sends encoded events. For a slow reader at most one piece is buffered."""
        self._written_at = time.monotonic()
        for start in range(0, len(frames), PIECE_BYTES):
            await self._response.write(frames[start : start + PIECE_BYTES])

    async def keep_alive(self, after_s: float = KEEP_ALIVE_S) -> None:
        """A comment now and then, so that proxies keep the connection and a lost one is noticed."""
        if time.monotonic() - self._written_at >= after_s:
            self._written_at = time.monotonic()
            await self._response.write(b": still here\n\n")

    async def close(self) -> web.StreamResponse:
        if self.is_read:
            await self._response.write_eof()
        return self._response


def whole_number(text: str, longest: int = 9) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= longest else None
