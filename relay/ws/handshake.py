"""The handshake: hello, authentication by token or key, welcome."""

import logging
from functools import partial

from aiohttp import web

from relay.auth import AGENT_SCOPES, Challenge, Identity, Tokens
from relay.core.instance.instance import Instance
from relay.core.session.session import Session
from relay.errors import StoreUnavailable, Unauthorized
from relay.protocol.address import is_address
from relay.protocol.frames import PROTOCOL, Auth, frame

log = logging.getLogger(__name__)


class Handshake:
    """Authenticates one client."""

    __slots__ = ("_challenge", "_instance", "_request", "_tokens")

    def __init__(self, request: web.Request, instance: Instance, tokens: Tokens) -> None:
        self._request = request
        self._instance = instance
        self._tokens = tokens
        self._challenge = Challenge(instance.store.instance)

    def hello(self) -> bytes:
        store = self._instance.store
        return frame(
            "hello",
            protocol=PROTOCOL,
            instance=store.instance,
            nonce=self._challenge.nonce,
            server_time_ms=store.clock.now_ms(),
        )

    async def authenticate(self, auth: Auth) -> Identity:
        """Raises Unauthorized, RateLimited or StoreUnavailable."""
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
        if not await self._instance.store.agents.is_key_of(auth.key, auth.agent, partial(self._new_agent, auth.agent)):
            raise Unauthorized("the key is not this agent's")
        return Identity(auth.agent, AGENT_SCOPES, key=auth.key)

    def _new_agent(self, address: str) -> None:
        """Raises RateLimited."""
        self._instance.registrations.one_more(self._request.remote or "", address)

    def _bearer(self) -> str:
        scheme, _, token = self._request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Unauthorized("no token: send one in the auth frame or as Authorization: Bearer")
        return token.strip()

    async def choose_mode(self, identity: Identity, auth: Auth) -> None:
        """Without a mode in the auth frame, the registered one applies. Raises StoreUnavailable."""
        if auth.mode is None:
            registration = await self._instance.store.agents.registration(identity.address) or {}
            auth.mode = registration.get("mode") or "exclusive"

    async def keep_card(self, session: Session, auth: Auth) -> None:
        """A full store keeps no new card, and that must not keep an agent from draining its mail."""
        card = bytes(auth.card)
        if not session.receives or card == b"null":
            return
        try:
            await self._instance.store.agents.register_card(session.address, card)
        except StoreUnavailable as error:
            log.warning("card_not_kept", extra={"agent": session.address, "error": error.message})

    def welcome(self, session: Session) -> bytes:
        session.epoch = self._instance.store.meta.epoch
        return frame(
            "welcome",
            agent=session.address,
            session=session.name,
            epoch=session.epoch,
            window=session.pump.window,
            protocol=PROTOCOL,
        )

    def renew(self, session: Session, auth: Auth) -> Identity:
        """The identity of a fresh token for this session. Raises Unauthorized; then the old token stays in force."""
        if auth.token is None:
            raise Unauthorized("a session is renewed with a token")
        identity = self._tokens.verify(auth.token)
        if identity.address != session.address:
            raise Unauthorized("the token is another agent's")
        return identity
