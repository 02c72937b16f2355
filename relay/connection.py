"""One WebSocket: handshake, frames in, frames out joined and bounded, and the close."""

import asyncio
import logging
import time
from contextlib import suppress
from typing import cast

from aiohttp import WSCloseCode, WSMsgType, web

from relay.auth import AGENT_SCOPES, Challenge, Identity, Tokens, same_key
from relay.errors import Malformed, RelayError, Unauthorized
from relay.hub import Hub
from relay.protocol import PROTOCOL, Auth, frame, is_address, parse
from relay.session import Session

log = logging.getLogger(__name__)

CONGESTED_BYTES = 2**20  # a socket with this much waiting gets no more deliveries until it has caught up
SLOW_AFTER_S = 10.0
CLOSE_TIMEOUT_S = 2.0  # how long a client may take to answer a close
LINGER_POLL_S = 0.05
PING = b"\x89\x00"


def text_frame(payload: bytes) -> bytes:
    """A whole, unmasked text frame as RFC 6455 has it."""
    size = len(payload)
    if size < 126:
        return b"\x81%c%b" % (size, payload)
    if size < 65_536:
        return b"\x81\x7e%b%b" % (size.to_bytes(2), payload)
    return b"\x81\x7f%b%b" % (size.to_bytes(8), payload)


def close_frame(code: int, reason: str) -> bytes:
    """A whole close frame; reasons are short words."""
    payload = code.to_bytes(2) + reason.encode()
    return b"\x88%c%b" % (len(payload), payload)


class Socket(web.WebSocketResponse):
    """Lets a client that sends too large a frame read why it is closed."""

    async def close(self, *, code: int = WSCloseCode.OK, message: bytes = b"", drain: bool = True) -> bool:
        transport = self._req.transport if self._req is not None else None
        if code == WSCloseCode.MESSAGE_TOO_BIG and transport is not None and not self.closed:
            # Closed with unread data waiting, the connection would be reset and the close frame lost with it. What
            # still comes is read and dropped meanwhile.
            transport.write(close_frame(code, "too large"))
            gone_at = time.monotonic() + CLOSE_TIMEOUT_S
            while not transport.is_closing() and time.monotonic() < gone_at:  # noqa: ASYNC110 - nobody else tells
                await asyncio.sleep(LINGER_POLL_S)
        return await super().close(code=code, message=message, drain=drain)


class Connection:
    """The socket of a session. Writing never waits: it is bounded by the window and by what is left in the buffer."""

    __slots__ = (
        "_asked_at",
        "_challenge",
        "_close_code",
        "_closing",
        "_ended",
        "_ending",
        "_heard_at",
        "_hub",
        "_out",
        "_pinged_at",
        "_progress_at",
        "_request",
        "_session",
        "_stuck_bytes",
        "_tokens",
        "_transport",
        "_ws",
    )

    def __init__(self, request: web.Request, hub: Hub, tokens: Tokens) -> None:
        self._request = request
        self._hub = hub
        self._tokens = tokens
        self._ws = Socket(
            timeout=CLOSE_TIMEOUT_S,
            autoping=False,  # a pong is a sign of life, so we want to see it
            compress=False,
            max_msg_size=hub.settings.max_frame_bytes + 1,  # aiohttp refuses from there on
            decode_text=False,
        )
        self._transport: asyncio.Transport | None = None
        self._challenge = Challenge(hub.store.instance)
        self._session: Session | None = None
        self._out: list[bytes] = []
        self._closing: str | None = None  # the word that was said, once the close has begun
        self._asked_at = 0.0  # and when
        self._ending = False  # the close frame is out: nothing is written or heard any more
        self._ended = asyncio.Event()  # the client has answered it, or is gone
        self._close_code = 0  # the code to close with when the session has finished, while it is waited for
        self._heard_at = self._pinged_at = self._progress_at = time.monotonic()
        self._stuck_bytes = 0  # what was in the buffer at the last tick

    async def serve(self) -> web.WebSocketResponse:
        """The whole life of the socket."""
        await self._ws.prepare(self._request)
        self._transport = cast(asyncio.Transport, self._request.transport)
        try:
            if self._hub.opened(self):
                await self._converse()
            else:
                self.close("too_many_connections", 4029, 1_000)
                await self._listen()
        finally:
            self._ended.set()
            self._hub.closed(self)
            # Shielded: whatever ends this handler, what the session held must go back.
            await asyncio.shield(self._end_session())
        return self._ws

    async def _end_session(self) -> None:
        if self._session is not None:
            await self._hub.end(self._session, self._closing or "disconnected")

    async def _converse(self) -> None:
        hub = self._hub
        self.write(
            frame(
                "hello",
                protocol=PROTOCOL,
                instance=hub.store.instance,
                nonce=self._challenge.nonce,
                server_time_ms=hub.store.clock.now_ms(),
            )
        )
        auth = await self._first_frame()
        if auth is None:
            return
        try:
            identity = await self._authenticate(auth)
            await self._begin(identity, auth)
        except RelayError as error:
            self.write(frame("error", **error.as_fields()))
            if isinstance(error, Unauthorized):
                self._hub.spawn(self._end(4501))
            else:
                self.close(error.code, 4000, 1_000)
        await self._listen()

    async def _first_frame(self) -> Auth | None:
        """The auth frame, or None when the connection is over. What is malformed before it is answered as ever."""
        try:
            async with asyncio.timeout(self._hub.settings.auth_timeout_s):
                while True:
                    data = await self._next_text()
                    if data is None:
                        return None
                    try:
                        first = parse(data)
                    except RelayError as error:
                        self.write(frame("error", **error.as_fields()))
                        continue
                    if isinstance(first, Auth):
                        return first
                    self.write(frame("error", **Unauthorized("authenticate first").as_fields()))
                    self._hub.spawn(self._end(4501))
                    break
        except TimeoutError:
            self.close("protocol_violation", 4503)
        await self._listen()
        return None

    async def _authenticate(self, auth: Auth) -> Identity:
        """Raises Unauthorized or StoreUnavailable."""
        if auth.signature is None:
            identity = self._tokens.verify(auth.token or self._bearer())
            if not identity.scopes & AGENT_SCOPES:
                raise Unauthorized("the token has neither the scope send nor receive")
            return identity
        if auth.agent is None or auth.key is None:
            raise Unauthorized("agent and key belong to a signature")
        if not is_address(auth.agent):
            raise Unauthorized("agent must be a whole address, tenant/agent")
        self._challenge.verify(auth.agent, auth.key, auth.signature)
        await self._check_key(auth.agent, auth.key)
        return Identity(auth.agent, AGENT_SCOPES)

    async def _check_key(self, agent: str, key: str) -> None:
        """In an open tenant the first key to come is the agent's; elsewhere an admin has registered it."""
        known = await self._hub.store.agents.registration(agent)
        if known is None and self._hub.settings.is_open(agent.partition("/")[0]):
            known = await self._hub.store.agents.claim(agent, key)
        if known is None or "key" not in known or not same_key(known["key"], key):
            raise Unauthorized("the key is not this agent's")

    def _bearer(self) -> str:
        scheme, _, token = self._request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Unauthorized("no token: send one in the auth frame or as Authorization: Bearer")
        return token.strip()

    async def _begin(self, identity: Identity, auth: Auth) -> None:
        hub = self._hub
        if not hub.store.meta.epoch:
            await hub.store.inspect()  # the first client may come before the first look at the store
        if auth.mode is None:
            registered = await hub.store.agents.registration(identity.address) or {}
            auth.mode = registered.get("mode") or "exclusive"
        session = self._session = hub.begin(identity, auth, self, self)
        session.renew = self._renew
        if (card := bytes(auth.card)) != b"null":
            await hub.store.agents.register_card(session.address, card)
        # The welcome goes first, and what the mailbox has can only follow the join.
        self._welcome(session)
        await hub.join(session)
        log.info("session_began", extra={"agent": session.address, "session": session.name, "mode": session.mode})

    def _welcome(self, session: Session) -> None:
        self.write(
            frame(
                "welcome",
                agent=session.address,
                session=session.name,
                epoch=self._hub.store.meta.epoch,
                window=session.window,
                protocol=PROTOCOL,
            )
        )

    def _renew(self, auth: Auth) -> None:
        """A fresh token keeps the session. Raises Unauthorized, and then the old one goes on counting."""
        session = self._session
        assert session is not None
        if auth.token is None:
            raise Unauthorized("a session is renewed with a token")
        identity = self._tokens.verify(auth.token)
        if identity.address != session.address:
            raise Unauthorized("the token is another agent's")
        session.identity = identity
        self._welcome(session)

    # -- frames in

    async def _listen(self) -> None:
        """Hands the client's frames to the session until the socket is closed."""
        while (data := await self._next_text()) is not None:
            if self._session is not None and not self._ending:
                self._session.receive(data)
                await self._session.calm()

    async def _next_text(self) -> bytes | None:
        """The next text frame; None at the end. Everything else is answered here."""
        ws = self._ws
        while True:
            message = await ws.receive()
            self._heard_at = time.monotonic()
            if message.type is WSMsgType.TEXT:
                data: bytes = message.data
                return data
            if message.type is WSMsgType.PING:
                await ws.pong(message.data)
            elif message.type is WSMsgType.BINARY:
                self.write(frame("error", **Malformed("frames are text, not binary").as_fields()))
            elif message.type is not WSMsgType.PONG:
                return None

    # -- frames out

    def write(self, text: bytes) -> None:
        """Puts a frame in line; what is written in one turn of the event loop goes out in one piece."""
        if self._ending:
            return
        if not self._out:
            asyncio.get_running_loop().call_soon(self._flush)
        self._out.append(text_frame(text))

    def _flush(self) -> None:
        out, self._out = self._out, []
        if out and self._transport is not None and not self._transport.is_closing():
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    def buffered_bytes(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def is_congested(self) -> bool:
        waiting = self.buffered_bytes()
        return waiting > CONGESTED_BYTES or (waiting > 0 and self._hub.is_over_budget())

    def tick(self, now: float) -> None:
        """What time brings: pings, and the end of what is silent, slow or no longer allowed."""
        settings = self._hub.settings
        self._watch_buffer(now)
        if now - self._heard_at > settings.silent_after_s:
            self.close("silent", 4010)
        elif now - self._pinged_at >= settings.heartbeat_s and self._transport is not None and not self._ending:
            self._pinged_at = now
            self._transport.write(PING)
        if self._session is not None and self._session.identity.has_expired():
            self.close("token_expired", 4511)
        if self._close_code and self._session is not None and self._hub.may_close(self._session, now - self._asked_at):
            self._hub.spawn(self._end(self._close_code))

    def _watch_buffer(self, now: float) -> None:
        waiting = self.buffered_bytes()
        if waiting == 0 or waiting < self._stuck_bytes:
            self._progress_at = now
        elif now - self._progress_at > SLOW_AFTER_S:
            self.close("slow", 4008, 1_000)
        if waiting < self._stuck_bytes and self._session is not None:
            self._session.ring()
        self._stuck_bytes = waiting

    # -- the close

    def close(self, word: str, code: int, retry_after_ms: int | None = None) -> None:
        """Says why, lets a draining session finish, and closes. Only the first reason counts."""
        if self._closing is not None:
            return
        self._closing = word
        if self._session is not None:
            self._session.closing = True
        again = {} if retry_after_ms is None else {"retry_after_ms": retry_after_ms}
        self.write(frame("closing", code=word, **again))
        self._asked_at = time.monotonic()
        if self._session is None or self._hub.may_close(self._session, 0.0):
            self._hub.spawn(self._end(code))
        else:
            self._close_code = code

    async def _end(self, code: int) -> None:
        """The closing handshake. The socket is closed only after the client's answer, or it might not see the code."""
        self._close_code = 0
        if self._ending:
            return
        await asyncio.sleep(0)  # the frames of this turn go out before the close
        self._flush()
        self._ending = True
        assert self._transport is not None
        if not self._transport.is_closing():
            self._transport.write(close_frame(code, self._closing or ""))
        await self._end_session()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._ended.wait()
        self._transport.abort()
