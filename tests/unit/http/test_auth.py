"""Tokens and keys: who is let in."""

import base64
import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from relay.auth import _Y8, Challenge, Identity, Tokens, key_bytes, same_key
from relay.errors import ConfigurationError, Forbidden, Unauthorized
from relay.settings import Settings
from tests.agents import Key

SECRET = "a secret for tests that is long enough"


def claims(**changes: Any) -> dict[str, Any]:
    every = {"sub": "alice", "tenant": "acme", "scope": "send receive", "exp": int(time.time()) + 60, **changes}
    return {name: value for name, value in every.items() if value is not None}


def hs256(**changes: Any) -> str:
    return jwt.encode(claims(**changes), SECRET, algorithm="HS256")


@pytest.fixture
def tokens() -> Tokens:
    return Tokens(Settings(token_secret=SECRET))


def test_a_good_token_is_an_identity(tokens: Tokens) -> None:
    identity = tokens.verify(hs256(scope="send fly admin"))

    assert (identity.address, identity.tenant) == ("acme/alice", "acme")
    assert identity.scopes == {"send", "admin"}
    assert not identity.has_expired()


def test_a_made_token_is_accepted_until_it_ends(tokens: Tokens) -> None:
    identity = tokens.verify(tokens.make("acme/alice", "receive", 60))

    assert identity.expires_at_s == pytest.approx(time.time() + 60, abs=2)


@pytest.mark.parametrize("key", ["pem", "base64"])
def test_eddsa_tokens_are_checked_with_the_public_key_in_either_form(key: str) -> None:
    private = Ed25519PrivateKey.generate()
    public = private.public_key()
    text = {
        "pem": public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode(),
        "base64": base64.b64encode(public.public_bytes_raw()).decode(),
    }[key]
    tokens = Tokens(Settings(token_public_key=text))

    assert tokens.verify(jwt.encode(claims(), private, algorithm="EdDSA")).address == "acme/alice"
    with pytest.raises(Unauthorized):
        tokens.verify(jwt.encode(claims(), Ed25519PrivateKey.generate(), algorithm="EdDSA"))
    with pytest.raises(Unauthorized):
        tokens.verify(hs256())
    with pytest.raises(ConfigurationError):
        tokens.make("acme/alice", "send", 60)


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": None},
        {"exp": 0},
        {"exp": "x"},
        {"exp": int(time.time()) + 10**6},
        {"sub": None},
        {"tenant": None},
        {"sub": "b/alice"},
        {"sub": "a b"},
        {"tenant": "a/b"},
        {"scope": 5},
        {"nbf": int(time.time()) + 600},
        {"exp": str(int(time.time()) + 60)},
        {"exp": True},
        {"exp": [1]},
        {"exp": float("nan")},
        {"exp": float("inf")},
        {"exp": 10**400},
        {"nbf": "1"},
        {"nbf": float("-inf")},
        {"iat": "1"},
        {"iat": float("nan")},
        {"sub": ["alice"]},
        {"tenant": {}},
    ],
)
def test_bad_claims_are_refused(tokens: Tokens, changes: dict[str, Any]) -> None:
    with pytest.raises(Unauthorized):
        tokens.verify(hs256(**changes))


@pytest.mark.parametrize("text", ["", "x", "a.b.c", "é.é.é", "." * 100])
def test_what_is_no_token_is_refused(tokens: Tokens, text: str) -> None:
    with pytest.raises(Unauthorized):
        tokens.verify(text)


def test_claims_nested_beyond_reason_are_refused(tokens: Tokens) -> None:
    text = b'{"exp":%d,"sub":"alice","tenant":"acme","x":%b%b}' % (time.time() + 60, b"[" * 100_000, b"]" * 100_000)

    with pytest.raises(Unauthorized):
        tokens.verify(jwt.api_jws.encode(text, SECRET, algorithm="HS256"))


def test_two_secrets_count_while_one_is_rotated() -> None:
    new, old = "the new secret, which is long enough too", SECRET
    tokens = Tokens(Settings(token_secret=new, token_secret_before=old))

    assert tokens.verify(hs256()).address == "acme/alice"
    assert Tokens(Settings(token_secret=new)).verify(tokens.make("acme/alice", "send", 60)).address == "acme/alice"
    with pytest.raises(Unauthorized):
        Tokens(Settings(token_secret=new)).verify(hs256())


def test_an_expired_token_is_called_so_whichever_secret_signed_it() -> None:
    tokens = Tokens(Settings(token_secret="another secret, which is long enough", token_secret_before=SECRET))

    with pytest.raises(Unauthorized, match="expired"):
        tokens.verify(hs256(exp=int(time.time()) - 10))


@pytest.mark.parametrize(
    ("scope", "own", "other"), [("send", False, False), ("admin", True, False), ("operator", True, True)]
)
def test_an_admin_is_its_tenants_and_an_operator_everybodys(tokens: Tokens, scope: str, own: bool, other: bool) -> None:
    identity = tokens.verify(hs256(scope=scope))

    assert (identity.administers("acme"), identity.administers("other")) == (own, other)


def test_the_old_meaning_of_admin_can_be_had() -> None:
    tokens = Tokens(Settings(token_secret=SECRET, admin_is_operator=True))

    assert tokens.verify(hs256(scope="admin")).is_operator
    assert not tokens.verify(hs256(scope="inspect")).is_operator


def test_an_unsigned_token_is_refused(tokens: Tokens) -> None:
    with pytest.raises(Unauthorized):
        tokens.verify(jwt.encode(claims(), None, algorithm="none"))


def test_without_secret_and_key_nothing_can_be_checked() -> None:
    with pytest.raises(ConfigurationError, match="RELAY_TOKEN_SECRET"):
        Tokens(Settings())


@pytest.mark.parametrize("text", ["rubbish", "AAAA", "-----BEGIN PUBLIC KEY-----\nrubbish\n-----END PUBLIC KEY-----"])
def test_a_public_key_that_is_none_stops_the_start(text: str) -> None:
    with pytest.raises(ConfigurationError, match="RELAY_TOKEN_PUBLIC_KEY"):
        Tokens(Settings(token_public_key=text))


def test_a_missing_scope_is_forbidden() -> None:
    identity = Identity("acme/alice", frozenset(("send",)))

    identity.require("send")
    with pytest.raises(Forbidden, match="receive"):
        identity.require("receive")


def test_a_key_does_not_expire() -> None:
    assert not Identity("acme/alice", frozenset()).has_expired()
    assert Identity("acme/alice", frozenset(), 1.0).has_expired()


def test_a_nonce_serves_once() -> None:
    challenge, key = Challenge("i-1"), Key()
    signature = key.sign({"instance": "i-1", "nonce": challenge.nonce}, "acme/alice")

    challenge.verify("acme/alice", key.public, signature)

    with pytest.raises(Unauthorized, match="nonce"):
        challenge.verify("acme/alice", key.public, signature)


@pytest.mark.parametrize("wrong", ["instance", "nonce", "address", "key", "signature"])
def test_a_signature_fits_one_instance_nonce_address_and_key(wrong: str) -> None:
    challenge, key = Challenge("i-1"), Key()
    hello = {"instance": "i-1", "nonce": challenge.nonce}
    if wrong in hello:
        hello[wrong] = "other"
    signature = key.sign(hello, "acme/bob" if wrong == "address" else "acme/alice")
    public = Key().public if wrong == "key" else key.public

    with pytest.raises(Unauthorized):
        challenge.verify("acme/alice", public, "!" if wrong == "signature" else signature)


P = 2**255 - 19
D = -121665 * pow(121666, P - 2, P) % P


def add(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """Two points of the curve."""
    (x1, y1), (x2, y2) = one, other
    both = D * x1 * x2 * y1 * y2
    return (x1 * y2 + x2 * y1) * pow(1 + both, -1, P) % P, (y1 * y2 + x1 * x2) * pow(1 - both, -1, P) % P


def small_order_ys() -> set[int]:
    """The y of every point whose order divides 8, found by adding one of order 8 to itself."""
    y = _Y8
    x = pow((y * y - 1) * pow(D * y * y + 1, -1, P), (P + 3) // 8, P)
    if (x * x * (D * y * y + 1) - (y * y - 1)) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    point, found = (x, y), set()
    for _ in range(8):
        found.add(point[1])
        point = add(point, (x, y))
    assert point == (x, y), "not of order 8"
    return found


def encoded(y: int, sign: int = 0) -> str:
    return base64.b64encode((y | sign << 255).to_bytes(32, "little")).decode()


def test_keys_that_anybody_can_sign_for_are_refused() -> None:
    assert len(small_order_ys()) == 5

    for y in small_order_ys():
        for sign in (0, 1):
            with pytest.raises(ValueError, match="small order"):
                key_bytes(encoded(y, sign))


@pytest.mark.parametrize("y", [P, P + 1, P + 18, 2**255 - 1])
def test_a_key_that_is_written_in_another_way_is_refused(y: int) -> None:
    with pytest.raises(ValueError, match="written"):
        key_bytes(encoded(y))


@pytest.mark.parametrize("text", ["", "AAAA", "!", base64.b64encode(bytes(33)).decode()])
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - base64 has words of its own
        key_bytes(text)


def test_a_small_order_key_does_not_authenticate() -> None:
    forged = base64.b64encode(b"\x01" + bytes(63)).decode()  # fits every message for the neutral element

    with pytest.raises(Unauthorized):
        Challenge("i-1").verify("acme/alice", encoded(1), forged)


def test_keys_are_compared_by_what_they_are() -> None:
    one, other = Key().public, Key().public

    assert same_key(one, one)
    assert not same_key(one, other)
