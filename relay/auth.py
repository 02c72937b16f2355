"""Who is there: tokens (JWT) and the Ed25519 challenge."""

import base64
import binascii
import hmac
import secrets
import time
from dataclasses import dataclass
from typing import Any

import jwt
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from relay.errors import ConfigurationError, Forbidden, RelayError, Unauthorized
from relay.protocol import address, is_address
from relay.settings import Settings

SCOPES = frozenset(("send", "receive", "inspect", "admin", "metrics"))
AGENT_SCOPES = frozenset(("send", "receive"))
CLOCK_LEEWAY_S = 5
_CHALLENGE = b"relay-auth-v1"


@dataclass(frozen=True, slots=True)
class Identity:
    """Who authenticated, and what it may do."""

    address: str
    scopes: frozenset[str]
    expires_at_s: float | None = None  # a key does not expire

    @property
    def tenant(self) -> str:
        return self.address.partition("/")[0]

    def has_expired(self) -> bool:
        return self.expires_at_s is not None and time.time() >= self.expires_at_s

    def require(self, scope: str) -> None:
        if scope not in self.scopes:
            raise Forbidden(f"the token lacks the scope {scope}")


class Tokens:
    """Checks and makes tokens."""

    def __init__(self, settings: Settings) -> None:
        self._secret = settings.token_secret
        self._public_key = _public_key(settings.token_public_key) if settings.token_public_key else None
        self._max_age_s = settings.token_max_age_s
        if self._secret is None and self._public_key is None:
            raise ConfigurationError("RELAY_TOKEN_SECRET or RELAY_TOKEN_PUBLIC_KEY must be set")

    def verify(self, token: str) -> Identity:
        """The identity that a token proves. Raises Unauthorized with a reason that helps, and no part of the token."""
        try:
            claims = self._decode(token)
        except jwt.ExpiredSignatureError:
            raise Unauthorized("the token has expired") from None
        except jwt.MissingRequiredClaimError as error:
            raise Unauthorized(f"the token lacks the claim {error.claim}") from None
        except (jwt.PyJWTError, ValueError, TypeError):
            raise Unauthorized("the token is not valid") from None
        if claims["exp"] > time.time() + self._max_age_s + CLOCK_LEEWAY_S:
            raise Unauthorized(f"the token expires more than {self._max_age_s} s from now")
        return Identity(_subject(claims), _scopes(claims), float(claims["exp"]))

    def _decode(self, token: str) -> dict[str, Any]:
        algorithm = jwt.get_unverified_header(token).get("alg")
        key = {"HS256": self._secret, "EdDSA": self._public_key}.get(str(algorithm))
        if key is None:
            raise jwt.InvalidAlgorithmError
        claims: dict[str, Any] = jwt.decode(
            token, key, algorithms=[str(algorithm)], options={"require": ["exp", "sub", "tenant"]}
        )
        return claims

    def make(self, agent: str, scopes: str, ttl_s: float) -> str:
        """A token for an address. Raises ConfigurationError without a secret."""
        if self._secret is None:
            raise ConfigurationError("RELAY_TOKEN_SECRET must be set to make tokens")
        tenant, _, name = agent.partition("/")
        claims = {"sub": name, "tenant": tenant, "scope": scopes, "exp": int(time.time() + ttl_s)}
        return jwt.encode(claims, self._secret, algorithm="HS256")


def _subject(claims: dict[str, Any]) -> str:
    subject, tenant = claims["sub"], claims["tenant"]
    if not isinstance(subject, str) or not isinstance(tenant, str):
        raise Unauthorized("the claims sub and tenant must be strings")
    try:
        found = address(subject, tenant)
    except RelayError:
        raise Unauthorized("the claim sub is not an agent's name") from None
    if not is_address(found) or found.partition("/")[0] != tenant:
        raise Unauthorized("the claims sub and tenant do not name an agent")
    return found


def _scopes(claims: dict[str, Any]) -> frozenset[str]:
    scope = claims.get("scope", "")
    if not isinstance(scope, str):
        raise Unauthorized("the claim scope must be a string")
    return frozenset(scope.split()) & SCOPES


def _public_key(text: str) -> Ed25519PublicKey:
    try:
        key = load_pem_public_key(text.encode()) if "BEGIN" in text else _raw_key(text)
    except ValueError:
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise ConfigurationError("RELAY_TOKEN_PUBLIC_KEY: must be an Ed25519 key, PEM or base64 of 32 bytes")
    return key


def _raw_key(text: str) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(base64.b64decode(text, validate=True))


class Challenge:
    """One nonce, for one connection; it serves once."""

    def __init__(self, instance: str) -> None:
        self.nonce = base64.b64encode(secrets.token_bytes(32)).decode()
        self._instance = instance
        self._used = False

    def verify(self, agent: str, key: str, signature: str) -> None:
        """Raises Unauthorized unless the key signed this nonce for this agent."""
        if self._used:
            raise Unauthorized("the nonce was used before")
        self._used = True
        signed = b"\0".join((_CHALLENGE, self._instance.encode(), self.nonce.encode(), agent.encode()))
        try:
            _raw_key(key).verify(base64.b64decode(signature, validate=True), signed)
        except (InvalidSignature, ValueError, binascii.Error):
            raise Unauthorized("the signature does not fit the key and the nonce") from None


def same_key(one: str, other: str) -> bool:
    """Whether two base64 texts are the same key, compared in constant time."""
    return hmac.compare_digest(base64.b64decode(one), base64.b64decode(other))
