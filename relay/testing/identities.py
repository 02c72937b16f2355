"""Identities of a fake relay: the tokens that it issues and accepts, and the keys it has seen."""

import base64
import json
from typing import Any

from relay.client.connection.credentials import claims
from relay.testing.clock import HandClock


class Identities:
    """Accepts every token that has not expired, and the first key of an agent."""

    def __init__(self, clock: HandClock, registrations: dict[str, dict[str, Any]]) -> None:
        self._clock = clock
        self._registrations = registrations

    def token(self, agent: str, tenant: str, scope: str, ttl_s: float) -> str:
        body = {"sub": agent, "tenant": tenant, "scope": scope, "exp": self._clock.now() + ttl_s}
        return f"e30.{base64.urlsafe_b64encode(json.dumps(body).encode()).decode().rstrip('=')}.fake"

    def of_auth(self, auth: dict[str, Any]) -> tuple[str, set[str]]:
        """Whose an auth frame is, and what it may. Raises PermissionError."""
        if not auth.get("key"):
            return self.of_token(auth.get("token") or "")
        known = self._registrations.setdefault(auth["agent"], {}).setdefault("key", auth["key"])
        if known != auth["key"]:
            raise PermissionError("the key is not this agent's")
        return auth["agent"], {"send", "receive"}

    def of_token(self, token: str) -> tuple[str, set[str]]:
        """Raises PermissionError."""
        found = claims(token)
        if not found.sub or found.exp is None:
            raise PermissionError("the token is not valid")
        if found.exp <= self._clock.now():
            raise PermissionError("the token has expired")
        return f"{found.tenant}/{found.sub}", set(found.scope.split())
