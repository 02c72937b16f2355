"""One WebSocket: its opening, frames in, and the close."""

import asyncio
import logging
import time
from contextlib import suppress
from typing import cast

from aiohttp import WSCloseCode, WSMsgType, web

from relay.auth import AGENT_SCOPES, Identity, Tokens
from relay.core.instance.instance import Instance
from relay.core.session.session import Session
from relay.errors import Malformed, RelayError, Unauthorized
from relay.protocol.close_codes import CLOSING, COME_BACK
from relay.protocol.frames import Auth, frame, parse_auth
from relay.server.connections import ServerConnection
from relay.server.framing import (
    CLOSE_TIMEOUT_S,
    LOOK,
    PING,
    Socket,
    close_frame,
    is_there,
    pong_frame,
    text_frame,
    until_confirmed,
)
from relay.telemetry.logs import Seldom
from relay.ws.handshake import Handshake
from relay.ws.writer import FrameWriter

log = logging.getLogger(__name__)
seldom = Seldom(log)

STRANGER_BYTES = 64 * 1024  # the largest frame before authentication
STRANGER_FRAMES = 100  # and how many there may be, of any kind
FRAME_WITHIN_S = 0.05  # so soon a frame that has come is dealt with


class Connection:
    """The socket of a session. Writing never blocks: the window and the output budget bound it."""

    __slots__ = (
        *("_asked_at", "_changes_role", "_close_code", "_closing", "_ended", "_handshake", "_has_auth", "_heard_at"),
        *("_instance", "_output", "_pinged_at", "_request", "_room", "_session", "_wire", "_writer", "_ws"),
    )

    def __init__(self, request: web.Request, instance: Instance, tokens: Tokens) -> None:
        self._request = request
        self._instance = instance
        self._handshake = Handshake(request, instance, tokens)
        self._ws = Socket(
            timeout=CLOSE_TIMEOUT_S,
            autoping=False,  # a pong is a sign of life, so we want to see it
            compress=False,
            max_msg_size=instance.settings.max_frame_bytes + 1,  # aiohttp refuses from there on
            decode_text=False,
        )
        self._wire = cast(ServerConnection, request.protocol)
        self._output = self._wire.output
        self._writer = FrameWriter(self._output, self._flushed)
        self._session: Session | None = None
        self._changes_role = False  # a fresh token gave or took the mailbox
        self._closing: str | None = None  # the word that was said, once the close has begun
        self._asked_at = 0.0  # and when
        self._ended = asyncio.Event()  # the client has answered it, or is gone
        self._close_code = 0  # the code to close with when the session has finished, while it is waited for
        self._heard_at = self._pinged_at = time.monotonic()
        self._has_auth = False  # whether the auth frame is there; the next ones wait until it is checked
        self._room: asyncio.Future[None] | None = None  # whoever waits until the client has read something

    async def serve(self) -> web.WebSocketResponse:
        """The whole life of the socket."""
        try:
            await self._ws.prepare(self._request)
        except web.HTTPBadRequest:
            raise Malformed("expected a WebSocket: an HTTP/1.1 request with Upgrade: websocket") from None
        self._writer.transport = cast(asyncio.Transport, self._request.transport)
        self._wire.stranger.on_flood = self._flooded
        self._wire.on_room, self._wire.on_lost = self._has_room, self._let_go
        self._wire.be_socket(STRANGER_BYTES)
        try:
            if self._instance.sockets.opened(self):
                await self._converse()
            else:
                self._refuse_connection("too_many")
                await self._listen()
        finally:
            self._ended.set()
            self._instance.sockets.closed(self)
            self._wire.stranger.on_flood = self._wire.on_room = None
            # Shielded: whatever ends this handler, what the session held must go back.
            await asyncio.shield(self._end_session())
        return self._ws

    async def _end_session(self) -> None:
        if self._session is not None:
            await self._instance.end(self._session, self._closing or "disconnected")

    async def _converse(self) -> None:
        self.write(self._handshake.hello())
        auth = await self._first_frame()
        if auth is None:
            return
        try:
            identity = await self._handshake.authenticate(auth)
            self._wire.be_known(identity.address)
            if wait_ms := self._instance.admissions.wait_ms():
                self._refuse_connection("at_once", "too many sessions begin here at once; come back later", wait_ms)
            else:
                await self._begin(identity, auth)
        except Unauthorized as error:
            self._turn_away(error)
        except RelayError as error:
            self.write(frame("error", **error.as_fields()))
            self.close(error.code, error.details.get("retry_after_ms", 1_000), error.message)
        await self._listen()

    def _turn_away(self, error: Unauthorized) -> None:
        self._instance.metrics.auth_failures["websocket"] += 1
        seldom.warning("not_authenticated", remote=self._request.remote, error=error.message)
        self.write(frame("error", **error.as_fields()))
        self._instance.spawn(self._end(4501))

    def _refuse_connection(self, why: str, message: str | None = None, retry_after_ms: int = 1_000) -> None:
        self._instance.metrics.connections_refused[why] += 1
        seldom.warning("connection_refused", why=why, remote=self._request.remote)
        self.close("too_many_connections", retry_after_ms, message)

    def _flooded(self) -> None:
        """A stranger has sent more than it may: it is not read on before its auth frame is checked, if there is one."""
        asyncio.get_running_loop().call_later(FRAME_WITHIN_S, self._end_flood)

    def _end_flood(self) -> None:
        if not self._has_auth and not self._writer.is_over and self._wire.stranger.drop():
            self._too_large()

    def _too_large(self) -> None:
        self._instance.metrics.closed["too_large"] += 1
        self._instance.spawn(self._end(WSCloseCode.MESSAGE_TOO_BIG))

    async def _first_frame(self) -> Auth | None:
        """The auth frame, or None when the connection is over. What is malformed before it is answered as ever."""
        try:
            async with asyncio.timeout(self._instance.settings.auth_timeout_s):
                while True:
                    data = await self._next_text()
                    if data is None:
                        return None
                    if self._closing is not None:
                        break
                    if len(data) > STRANGER_BYTES:
                        self._too_large()
                        break
                    try:
                        auth = parse_auth(data)
                    except RelayError as error:
                        self.write(frame("error", **error.as_fields()))
                        self._wire.stranger.answered()
                        await self._until_room()
                        continue
                    if auth is not None:
                        self._has_auth = True
                        return auth
                    self._turn_away(Unauthorized("authenticate first"))
                    break
        except TimeoutError:
            self.close("protocol_violation")
        await self._listen()
        return None

    async def _begin(self, identity: Identity, auth: Auth) -> None:
        instance = self._instance
        await instance.membership.check_epoch()
        await self._handshake.choose_mode(identity, auth)
        if auth.mode != "exclusive" and instance.sessions.has_too_many(identity.address):
            self._refuse_connection("agent", "this agent has as many sessions here as it may; close one first")
            return
        session = self._session = instance.begin(identity, auth, self._output, self)
        session.renew = self._renew
        await self._handshake.keep_card(session, auth)
        # The welcome goes first, and what the mailbox has can only follow the join.
        self.write(self._handshake.welcome(session))
        if not await self._is_there():  # it would take the mailbox from who serves it, for nobody
            return
        await instance.membership.join(session)
        log.info("session_began", extra={"agent": session.address, "session": session.name, "mode": session.mode})

    async def _is_there(self) -> bool:
        """Whether the client has not gone. Behind input that we have not read, its end does not show."""
        transport = self._writer.transport
        if self._wire.has_input() or self._ws.has_frames():
            self._writer.flush()
            await until_confirmed(transport)
        return is_there(transport)

    def _renew(self, auth: Auth) -> None:
        """A fresh token keeps the session, with its own scopes. Raises Unauthorized, and then the old one counts on."""
        session = self._session
        assert session is not None
        identity = self._handshake.renew(session, auth)
        self._changes_role = session.renewed(identity)
        if not identity.scopes & AGENT_SCOPES:
            self.close("unauthorized")
            return
        self.write(self._handshake.welcome(session))

    async def _change_role(self, session: Session) -> None:
        """Before the next frame is read, which may be about the mailbox."""
        self._changes_role = False
        try:
            await self._instance.membership.change_role(session)
        except RelayError as error:
            self.close(error.code, 1_000)

    # -- frames in

    async def _listen(self) -> None:
        """Hands the client's frames to the session until the socket is closed."""
        self._ws.hand_frames_to(self._on_frame, self._heard)
        while (data := await self._next_text()) is not None:
            if self._session is not None and not self._writer.is_over:
                self._session.receive(data)
            else:
                self._wire.stranger.answered()
            await self._until_ready()

    def _on_frame(self, data: bytes) -> bool:
        """A frame that nothing stands before. False if the next one has to wait for something."""
        session = self._session
        self._heard_at = time.monotonic()
        if session is None or self._writer.is_over:
            self._wire.stranger.answered()
            return False
        try:
            session.receive(data)
        except Exception:
            log.exception("frame_not_handled", extra={"session": session.name})
            self._instance.spawn(self._end(WSCloseCode.INTERNAL_ERROR))
            return False
        return not self._changes_role and session.answers.has_capacity() and self._output.room() > 0

    def _heard(self) -> None:
        """A pong: the client is alive."""
        self._heard_at = time.monotonic()

    async def _until_ready(self) -> None:
        """Returns when the next frame may be dealt with."""
        if self._session is not None and not self._writer.is_over:
            if self._changes_role:
                await self._change_role(self._session)
            await self._session.answers.wait_for_capacity()
        await self._until_room()

    async def _until_room(self) -> None:
        """Returns when the client has read enough of its output. Until then its frames are not read."""
        transport = self._writer.transport
        assert transport is not None
        while self._output.room() == 0 and not self._writer.is_over and not transport.is_closing():
            self._room = asyncio.get_running_loop().create_future()
            await self._room
            self._room = None

    def _let_go(self) -> None:
        """Ends the wait for room."""
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def _look_for_room(self) -> None:
        if (
            self._room is not None or (self._session is not None and self._session.is_stalled)
        ) and self._output.room() > 0:
            self._has_room()

    def _has_room(self) -> None:
        """The client has read something."""
        self._let_go()
        if self._session is not None:
            self._session.resume()

    async def _next_text(self) -> bytes | None:
        """The next text frame; None at the end. Everything else is answered here."""
        ws = self._ws
        while True:
            message = await ws.receive_in_turn()
            self._heard_at = time.monotonic()
            if not self._has_auth and ws.frames > STRANGER_FRAMES:
                self.close("protocol_violation", message=f"more than {STRANGER_FRAMES} frames came before auth")
            if message.type is WSMsgType.TEXT:
                data: bytes = message.data
                return data
            if message.type is WSMsgType.PING:
                self._writer.write(pong_frame(message.data))
                await self._until_room()
            elif message is LOOK:
                await self._until_ready()
            elif message.type is WSMsgType.BINARY:
                self.write(frame("error", **Malformed("frames are text, not binary").as_fields()))
                await self._until_room()
            elif message.type is not WSMsgType.PONG:
                return None

    # -- frames out

    def write(self, text: bytes) -> None:
        """Puts a frame in line; what is written in one turn of the event loop goes out in one piece."""
        self._writer.write(text_frame(text))

    def _flushed(self) -> None:
        if self._session is not None and self._session.is_stalled:
            asyncio.get_running_loop().call_soon(self._look_for_room)  # the socket may take it all at once

    def tick(self, now: float) -> None:
        """Sends pings, and closes a silent, slow or expired session."""
        session, settings = self._session, self._instance.settings
        if self._output.is_stuck(now):
            self.close("slow", 1_000)
        else:
            self._look_for_room()
        if now - self._heard_at > settings.silent_after_s:
            self.close("silent", 1_000)
        elif now - self._pinged_at >= settings.heartbeat_s:
            self._pinged_at = now
            if not self._writer.is_over:
                self._writer.write_now(PING)
        if session is not None:
            if session.identity.has_expired():
                self.close("token_expired")
            if self._close_code and self._instance.drain.may_close(session, now - self._asked_at):
                self._instance.spawn(self._end(self._close_code))

    # -- the close

    def close(self, word: str, retry_after_ms: int | None = None, message: str | None = None) -> None:
        """Says why, lets a draining session finish, and closes. Only the first reason counts."""
        if self._closing is not None:
            return
        self._closing = word
        self._instance.metrics.closed[word] += 1
        if word == "slow":
            seldom.warning("slow_reader_closed", remote=self._request.remote, unread_bytes=self._output.waiting)
        if self._session is not None:
            self._session.pump.is_closing = True
        code, usual = CLOSING.get(word, (COME_BACK, word))
        again = {} if retry_after_ms is None else {"retry_after_ms": retry_after_ms}
        self.write(frame("closing", code=word, message=message or usual, **again))
        self._asked_at = time.monotonic()
        if self._may_close(0.0):
            self._instance.spawn(self._end(code))
        else:
            self._close_code = code
            self._instance.sockets.hurry(self)

    def _may_close(self, asked_s: float) -> bool:
        return self._session is None or self._instance.drain.may_close(self._session, asked_s)

    async def _end(self, code: int) -> None:
        """The closing handshake. The socket is closed only after the client's answer, or it might not see the code."""
        self._close_code = 0
        if self._writer.is_over:
            return
        await asyncio.sleep(0)  # the frames of this turn go out before the close
        self._writer.end(close_frame(code, self._closing or ""))
        self._let_go()
        await self._end_session()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._ended.wait()
        assert self._writer.transport is not None
        self._writer.transport.abort()
