"""The connection: one session after the other, through any instance, until it has ended for good."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

import aiohttp

from relay.client.clock import Timer, sleep
from relay.client.connection.backoff import Backoff
from relay.client.connection.credentials import Credentials
from relay.client.connection.frames import Closing, Error, Frame, Hello, Pong, Welcome, frame, parse
from relay.client.connection.link import Link, Relay
from relay.client.connection.states import COME_BACK_BELOW, Connecting, Ended, Live, ReplacedBy, State, in_words
from relay.client.errors import Closed, Replaced, Unauthorized

log = logging.getLogger(__name__)

PAUSE_S = (0.5, 15.0)
SILENT_S = 20.0  # after so long without a word the relay is asked whether it is there
ANSWER_S = 10.0  # and has so long to answer
WELCOME_S = 15.0
RENEW_AT = 0.8  # of a token's life
REPLACED, TOKEN_EXPIRED, UNAUTHORIZED, PROTOCOL_VIOLATION = 4509, 4511, 4501, 4503


class FrameHandler(Protocol):
    """Receives the relay's frames."""

    def session_began(self, welcome: Welcome) -> None: ...
    def session_ended(self, code: int | None) -> None: ...
    def hear(self, said: Frame) -> None: ...
    def state_changed(self, state: State) -> None: ...


class Connection:
    """Reconnects by itself, unless the relay's close code forbids it."""

    def __init__(self, relay: Relay, credentials: Credentials, handler: FrameHandler, options: dict[str, Any]) -> None:
        self._relay = relay
        self._credentials = credentials
        self._handler = handler
        self.options = options  # of the auth frame: window, mode, …
        self._link: Link | None = None
        self._is_live = False
        self._was_live = False  # whether the last session got as far as its welcome
        self._at = 0  # which url is next
        self._backoff = Backoff(*PAUSE_S)
        self._retry_after_s: float | None = None
        self._heard = False  # since the last look
        self._silence: Timer | None = None  # when to look whether the relay is still there
        self._renewal: Timer | None = None  # when to get a fresh token
        self._told = ""  # the last error, which says more than a close code
        self._is_leaving = False  # no session follows
        self.url = relay.urls[0]  # of the last session: where calls go

    def is_live(self) -> bool:
        return self._is_live

    def say(self, text: bytes) -> None:
        """A frame to the relay; lost if there is no session, as it would be a moment later."""
        if self._is_live and self._link is not None:
            self._link.write(text)

    async def run(self) -> None:
        """Session after session. Raises Closed when it is over for good."""
        why = ""
        while True:
            self.url = self._relay.urls[self._at % len(self._relay.urls)]
            self._handler.state_changed(Connecting(self.url, self._backoff.attempts + 1, why))
            code = await self._one_session()
            if self._is_leaving:
                return
            why = self._told or in_words(code)
            self._check(code, why)
            self._at += 1
            log.log(
                logging.INFO if self._backoff.attempts else logging.WARNING, "%s: %s", self.url, why
            )  # once an outage
            await sleep(self._relay.clock, self._pause_s())

    def _pause_s(self) -> float:
        """Another instance may be tried at once; only when all have failed is it time to rest."""
        asked_s, self._retry_after_s = self._retry_after_s, None
        pause_s = self._backoff.next_s(asked_s)
        tries_another = self._backoff.attempts < len(self._relay.urls)
        return min(pause_s, 0.1) if tries_another and asked_s is None else pause_s

    def _check(self, code: int | None, why: str) -> None:
        """Raises Closed if the relay does not want us back."""
        if code == TOKEN_EXPIRED and self._credentials.can_renew:
            return
        if code == PROTOCOL_VIOLATION and not self._was_live:
            return  # a busy machine, or a slow source of tokens: the relay did not wait for us
        if code is None or code < COME_BACK_BELOW:
            return
        if code == REPLACED:
            self._handler.state_changed(ReplacedBy(why))
            raise Replaced(why, code)
        self._handler.state_changed(Ended(why, code))
        raise Unauthorized(why, code) if code in (UNAUTHORIZED, TOKEN_EXPIRED) else Closed(why, code)

    async def _one_session(self) -> int | None:
        """From the connect to the close, whose code is returned."""
        self._told = ""
        self._was_live = False
        try:
            link = self._link = await self._relay.connect(self.url)
        except (OSError, aiohttp.ClientError, TimeoutError) as error:
            self._told = f"no relay answers at {self.url}: {error or type(error).__name__}"
            return None
        try:
            await self._converse(link)
        finally:
            self._is_live = False
            self._link = None
            for timer in (self._silence, self._renewal):
                if timer is not None:
                    timer.cancel()
            await link.close()
        self._handler.session_ended(link.close_code)
        return link.close_code

    async def _converse(self, link: Link) -> None:
        try:
            async with asyncio.timeout(WELCOME_S):
                welcome = await self._open(link)
        except TimeoutError:
            self._told = "the relay does not answer"
            return
        if welcome is None:
            return
        self._begin(welcome)
        while (text := await link.receive()) is not None:
            self._heard = True
            said = parse(text)
            if isinstance(said, Closing):
                self._note_closing(said)
            elif isinstance(said, Error) and said.code == "unauthorized":
                log.warning("the relay does not take the fresh token: %s", said.message)
            elif said is not None and not isinstance(said, Pong | Welcome):
                self._hear(said)

    def _hear(self, said: Frame) -> None:
        """Whatever a frame says, the next one is heard."""
        try:
            self._handler.hear(said)
        except Exception as error:
            log.error("a frame of the relay (%s) failed: %s", type(said).__name__, type(error).__name__)

    async def _open(self, link: Link) -> Welcome | None:
        """Opens a session; None if the relay closes before the welcome. Raises Closed if our auth is malformed."""
        while (text := await link.receive()) is not None:
            match parse(text):
                case Hello() as hello:
                    self._instance = hello.instance
                    auth = await self._auth(hello)
                    if auth is None:
                        return None
                    link.write(frame("auth", **auth, **self.options))
                case Welcome() as welcome:
                    return welcome
                case Closing() as closing:
                    self._note_closing(closing)
                case Error(code="malformed", message=message):
                    self._handler.state_changed(Ended(message))
                    raise Closed(message)
                case Error(message=message):
                    self._told = message
        return None

    async def _auth(self, hello: Hello) -> dict[str, Any] | None:
        """None if there is no token for now: where it comes from may be away, too."""
        try:
            return await self._credentials.auth(hello)
        except Exception as error:
            log.exception("no token")
            self._told = f"no token: {type(error).__name__}: {error}"
            return None

    def _note_closing(self, closing: Closing) -> None:
        self._told = closing.message
        if closing.retry_after_ms is not None:
            self._retry_after_s = closing.retry_after_ms / 1_000

    def _begin(self, welcome: Welcome) -> None:
        self._is_live = self._was_live = True
        self._backoff.reset()
        self._heard = True
        self._look_in(SILENT_S, self._look)
        self._plan_renewal()
        self._handler.session_began(welcome)
        self._handler.state_changed(Live(self.url, self._instance))

    # -- liveness

    def _look_in(self, delay_s: float, look: Callable[[], None]) -> None:
        self._silence = self._relay.clock.call_later(delay_s, look)

    def _look(self) -> None:
        if self._heard:
            self._heard = False
            self._look_in(SILENT_S, self._look)
        else:
            self.say(frame("ping"))
            self._look_in(ANSWER_S, self._listen_for_pong)

    def _listen_for_pong(self) -> None:
        if self._heard:
            self._look()
        else:
            self._told = "the relay fell silent"
            self.drop()

    def drop(self) -> None:
        """Ends the session from this side; the next one follows."""
        link = self._link
        if link is not None:
            self._is_live = False
            self._closing = asyncio.ensure_future(link.close())

    async def leave(self) -> None:
        """Ends the session for good, and returns when the relay has heard everything."""
        self._is_leaving = True
        if self._link is not None:
            await self._link.close()

    # -- the token

    def _plan_renewal(self) -> None:
        expires_at = self._credentials.expires_at
        if expires_at is not None and self._credentials.can_renew:
            left_s = expires_at - self._relay.clock.now()
            self._renewal = self._relay.clock.call_later(max(1.0, left_s * RENEW_AT), self._renew)

    def _renew(self) -> None:
        self._renewing = asyncio.ensure_future(self._renew_now())

    async def _renew_now(self) -> None:
        try:
            token = await self._credentials.fresh_token()
        except Exception:
            log.exception("no fresh token; trying again before the old one ends")
        else:
            self.say(frame("auth", token=token))
        if self._is_live:
            self._plan_renewal()
