"""Tokens and keys: who is let in."""

import base64
import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from relay.auth import Challenge, Identity, Tokens, same_key
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
    ],
)
def test_bad_claims_are_refused(tokens: Tokens, changes: dict[str, Any]) -> None:
    with pytest.raises(Unauthorized):
        tokens.verify(hs256(**changes))


@pytest.mark.parametrize("text", ["", "x", "a.b.c", "é.é.é", "." * 100])
def test_what_is_no_token_is_refused(tokens: Tokens, text: str) -> None:
    with pytest.raises(Unauthorized):
        tokens.verify(text)


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


def test_keys_are_compared_by_what_they_are() -> None:
    one, other = Key().public, Key().public

    assert same_key(one, one)
    assert not same_key(one, other)
