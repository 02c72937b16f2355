"""Authentication: tokens (JWT) and the Ed25519 challenge."""

import base64
import hmac
import math
import secrets
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import jwt
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from relay.errors import ConfigurationError, Forbidden, RelayError, Unauthorized
from relay.protocol.address import address, is_address
from relay.settings import Settings

SCOPES = frozenset(("send", "receive", "inspect", "admin", "metrics", "operator"))
AGENT_SCOPES = frozenset(("send", "receive"))
CLOCK_LEEWAY_S = 5
_CHALLENGE = b"relay-auth-v1"
_TIMES = ("exp", "nbf", "iat")
_P = 2**255 - 19
# The y of the eight points whose order divides 8. For such a key anybody can make signatures.
_Y8 = 0x5FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_SMALL_ORDER = frozenset((0, 1, _P - 1, _Y8, _P - _Y8))


@dataclass(frozen=True, slots=True)
class Identity:
    """Who authenticated, and what it may do."""

    address: str
    scopes: frozenset[str]
    expires_at_s: float | None = None  # a key does not expire
    key: str | None = None  # the key that it authenticated with, if it was not a token

    @property
    def tenant(self) -> str:
        return self.address.partition("/")[0]

    @property
    def is_admin(self) -> bool:
        """Of its own tenant."""
        return "admin" in self.scopes

    @property
    def is_operator(self) -> bool:
        """An admin of every tenant."""
        return "operator" in self.scopes

    def administers(self, tenant: str) -> bool:
        return self.is_operator or (self.is_admin and tenant == self.tenant)

    def has_expired(self) -> bool:
        return self.expires_at_s is not None and self.expires_at_s <= time.time()

    def lasts_s(self) -> float:
        """How long it may still be acted on."""
        return math.inf if self.expires_at_s is None else self.expires_at_s - time.time()

    def until(self, seconds: float) -> float:
        """The monotonic time when a wait of this length ends, at the latest when the token expires."""
        return time.monotonic() + min(seconds, self.lasts_s())

    def require(self, scope: str) -> None:
        if scope not in self.scopes:
            raise Forbidden(f"the token lacks the scope {scope}")


class Tokens:
    """Checks and makes tokens."""

    def __init__(self, settings: Settings) -> None:
        self._secret = settings.token_secret
        self._secrets = [
            secret for secret in (settings.token_secret, settings.token_secret_before) if secret is not None
        ]
        self._admin_is_operator = settings.admin_is_operator
        self._public_key = _public_key(settings.token_public_key) if settings.token_public_key else None
        self._max_age_s = settings.token_max_age_s
        if not self._secrets and self._public_key is None:
            raise ConfigurationError("RELAY_TOKEN_SECRET or RELAY_TOKEN_PUBLIC_KEY must be set")

    def verify(self, token: str) -> Identity:
        """The identity that a token proves. Raises Unauthorized with a reason that helps, and no part of the token."""
        try:
            claims = self._decode(token)
        except jwt.ExpiredSignatureError:
            raise Unauthorized("the token has expired") from None
        except jwt.MissingRequiredClaimError as error:
            raise Unauthorized(f"the token lacks the claim {error.claim}") from None
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError):
            raise Unauthorized("the token is not valid") from None
        _check_times(claims)
        if claims["exp"] > time.time() + self._max_age_s + CLOCK_LEEWAY_S:
            raise Unauthorized(f"the token expires more than {self._max_age_s} s from now")
        return Identity(_subject(claims), self._scopes(claims), float(claims["exp"]))

    def _decode(self, token: str) -> dict[str, Any]:
        algorithm = str(jwt.get_unverified_header(token).get("alg"))
        keys: dict[str, list[Any]] = {"HS256": self._secrets, "EdDSA": [self._public_key]}
        for key in keys.get(algorithm, []):
            with suppress(jwt.InvalidSignatureError):  # it may fit the other secret
                return _claims(token, key, algorithm)
        raise jwt.InvalidSignatureError

    def _scopes(self, claims: dict[str, Any]) -> frozenset[str]:
        """The known scopes. An operator is also an admin of its own tenant."""
        scope = claims.get("scope", "")
        if not isinstance(scope, str):
            raise Unauthorized("the claim scope must be a string")
        scopes = frozenset(scope.split()) & SCOPES
        if "operator" in scopes or ("admin" in scopes and self._admin_is_operator):
            scopes |= {"admin", "operator"}
        return scopes

    def make(self, agent: str, scopes: str, ttl_s: float) -> str:
        """A token for an address. Raises ConfigurationError without a secret."""
        if self._secret is None:
            raise ConfigurationError("RELAY_TOKEN_SECRET must be set to make tokens")
        tenant, _, name = agent.partition("/")
        claims = {"sub": name, "tenant": tenant, "scope": scopes, "exp": int(time.time() + ttl_s)}
        return jwt.encode(claims, self._secret, algorithm="HS256")


def _claims(token: str, key: Any, algorithm: str) -> dict[str, Any]:
    if key is None:
        raise jwt.InvalidAlgorithmError
    claims: dict[str, Any] = jwt.decode(
        token, key, algorithms=[algorithm], options={"require": ["exp", "sub", "tenant"]}
    )
    return claims


def _check_times(claims: dict[str, Any]) -> None:
    """The library also takes a time that is written as a string. Raises Unauthorized."""
    for name in _TIMES:
        at_s = claims.get(name, 0)
        if isinstance(at_s, bool) or not isinstance(at_s, int | float):
            raise Unauthorized(f"the claim {name} must be a number")


def _subject(claims: dict[str, Any]) -> str:
    subject, tenant = claims["sub"], claims["tenant"]
    if not isinstance(subject, str) or not isinstance(tenant, str):
        raise Unauthorized("the claims sub and tenant must be strings")
    try:
        agent = address(subject, tenant)
    except RelayError:
        raise Unauthorized("the claim sub is not an agent's name") from None
    if not is_address(agent) or agent.partition("/")[0] != tenant:
        raise Unauthorized("the claims sub and tenant do not name an agent")
    return agent


def _public_key(text: str) -> Ed25519PublicKey:
    try:
        key = load_pem_public_key(text.encode()) if "BEGIN" in text else _raw_key(text)
    except ValueError:
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise ConfigurationError("RELAY_TOKEN_PUBLIC_KEY: must be an Ed25519 key, PEM or base64 of 32 bytes")
    return key


def _raw_key(text: str) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(key_bytes(text))


def key_bytes(text: str) -> bytes:
    """A public key from its base64. Raises ValueError, also for one that proves nothing."""
    key = base64.b64decode(text, validate=True)
    if len(key) != 32:
        raise ValueError("expected base64 of 32 bytes")
    y = int.from_bytes(key, "little") & (2**255 - 1)
    if y >= _P or y in _SMALL_ORDER:
        raise ValueError("the key is of small order, or not written as it should be")
    return key


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
        except (InvalidSignature, ValueError):
            raise Unauthorized("the signature does not fit the key and the nonce") from None


def same_key(one: str, other: str) -> bool:
    """Whether two base64 texts are the same key, compared in constant time."""
    return hmac.compare_digest(base64.b64decode(one), base64.b64decode(other))
