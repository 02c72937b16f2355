"""Credentials: a token that is renewed before it expires, or a key that signs the relay's nonce."""

import base64
import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from relay.client.errors import Unauthorized

if TYPE_CHECKING:
    from relay.client.connection.frames import Hello
    from relay.client.keys.keys import Key

TokenSource = str | Callable[[], str] | Callable[[], Awaitable[str]]


class _Claims(msgspec.Struct):
    sub: str = ""
    tenant: str = ""
    scope: str = ""
    exp: float | None = None


def claims(token: str) -> _Claims:
    """The claims of a token. The relay verifies it."""
    try:
        _, body, _ = token.split(".")
        return msgspec.json.decode(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)), type=_Claims)
    except (ValueError, msgspec.DecodeError):
        return _Claims()


class Credentials:
    """Makes auth frames."""

    def __init__(self, token: TokenSource | None, key: "Key | None", address: str | None) -> None:
        if (token is None) == (key is None):
            raise ValueError("an agent needs either a token or a key")
        if key is not None and (address is None or "/" not in address):
            raise ValueError("an agent with a key needs its address, tenant/agent")
        self._source = token
        self._key = key
        self._address = address
        self.token: str | None = None  # the one in use

    @property
    def can_renew(self) -> bool:
        return callable(self._source)

    async def fresh_token(self) -> str | None:
        """A token for now; None if the agent has a key."""
        if self._source is None:
            return None
        found: Any = self._source() if callable(self._source) else self._source
        self.token = await found if inspect.isawaitable(found) else found
        return self.token

    async def auth(self, hello: "Hello") -> dict[str, Any]:
        token = await self.fresh_token()
        if token is not None:
            return {"token": token}
        assert self._key is not None
        assert self._address is not None
        signed = "\0".join(("relay-auth-v1", hello.instance, hello.nonce, self._address))
        return {"agent": self._address, "key": self._key.public, "signature": self._key.sign(signed.encode())}

    def for_calls(self) -> str:
        """The token for HTTP. Raises Unauthorized: keys open only WebSockets."""
        if self.token is None:
            raise Unauthorized("HTTP calls need a token; this agent has only a key")
        return self.token

    @property
    def expires_at(self) -> float | None:
        return claims(self.token).exp if self.token else None

    @property
    def scopes(self) -> set[str] | None:
        """The scopes of the token; None if unknown."""
        return set(claims(self.token).scope.split()) or None if self.token else None
