"""Keys: Ed25519 to sign with, X25519 to seal with. Needs `cryptography`, which comes with agent-relay[client]."""

import base64
import binascii
import os
from pathlib import Path
from typing import Any

import msgspec

from relay.client.errors import CannotOpen

SEALED = b'{"sealed":"x25519-chacha20poly1305"'
_INFO = b"relay-sealed-v1\0"


def _primitives() -> Any:
    """The parts of cryptography that are used, on first use: an agent without keys does not need it."""
    try:
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ed25519, x25519
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF
    except ImportError:
        raise ImportError("keys need the package cryptography: pip install agent-relay[client]") from None
    return _Primitives(ed25519, x25519, ChaCha20Poly1305, HKDF, hashes)


class _Primitives:
    def __init__(self, ed25519: Any, x25519: Any, aead: Any, hkdf: Any, hashes: Any) -> None:
        self.ed25519, self.x25519, self.aead, self.hkdf, self.hashes = ed25519, x25519, aead, hkdf, hashes


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _data(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _write_private(path: Path, private: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(_text(private) + "\n")


class Key:
    """An Ed25519 key: who the agent is. It can open sessions instead of a token, and sign messages.

    >>> key = Key.generate()
    >>> Key.is_by(key.public, key.sign(b"hello"), b"hello")
    True
    """

    def __init__(self, private: bytes) -> None:
        self._key = _primitives().ed25519.Ed25519PrivateKey.from_private_bytes(private)
        self.public = _text(self._key.public_key().public_bytes_raw())

    @classmethod
    def generate(cls) -> "Key":
        """A new key.

        >>> len(Key.generate().public)
        44
        """
        return cls(_primitives().ed25519.Ed25519PrivateKey.generate().private_bytes_raw())

    @classmethod
    def load(cls, path: str | Path) -> "Key":
        """The key in a file of `relay keygen --out`.

        >>> key = Key.generate()
        >>> key.save(folder / "alice.key")
        >>> Key.load(folder / "alice.key").public == key.public
        True
        """
        return cls(_data(Path(path).read_text().strip()))

    def save(self, path: str | Path) -> None:
        """Writes the private key to a new file that only its owner can read.

        >>> Key.generate().save(folder / "new.key")
        """
        _write_private(Path(path), self._key.private_bytes_raw())

    def sign(self, data: bytes) -> str:
        """A signature in base64.

        >>> len(Key.generate().sign(b"hello"))
        88
        """
        return _text(self._key.sign(data))

    @staticmethod
    def is_by(public: str, signature: str, data: bytes) -> bool:
        """Whether the owner of a public key signed this.

        >>> Key.is_by(Key.generate().public, Key.generate().sign(b"hello"), b"hello")
        False
        """
        from cryptography.exceptions import InvalidSignature

        try:
            _primitives().ed25519.Ed25519PublicKey.from_public_bytes(_data(public)).verify(_data(signature), data)
        except (InvalidSignature, ValueError, binascii.Error):
            return False
        return True


class SealingKey:
    """An X25519 key: payloads that are sealed to its public half can be read by its owner alone.

    >>> bobs, alices = SealingKey.generate(), SealingKey.generate()
    >>> box = alices.seal(bobs.public, b'"meet at noon"', b"alice to bob")
    >>> b"noon" in box
    False
    >>> bobs.open(alices.public, box, b"alice to bob")
    b'"meet at noon"'
    """

    def __init__(self, private: bytes) -> None:
        self._key = _primitives().x25519.X25519PrivateKey.from_private_bytes(private)
        self.public = _text(self._key.public_key().public_bytes_raw())

    @classmethod
    def generate(cls) -> "SealingKey":
        """A new key.

        >>> len(SealingKey.generate().public)
        44
        """
        return cls(_primitives().x25519.X25519PrivateKey.generate().private_bytes_raw())

    @classmethod
    def load(cls, path: str | Path) -> "SealingKey":
        """The key in a file that `save` wrote.

        >>> key = SealingKey.generate()
        >>> key.save(folder / "alice.sealing")
        >>> SealingKey.load(folder / "alice.sealing").public == key.public
        True
        """
        return cls(_data(Path(path).read_text().strip()))

    def save(self, path: str | Path) -> None:
        """Writes the private key to a new file that only its owner can read.

        >>> SealingKey.generate().save(folder / "new.sealing")
        """
        _write_private(Path(path), self._key.private_bytes_raw())

    @staticmethod
    def is_public(text: str) -> bool:
        """Whether this is the public half of a sealing key that can be sealed to. One of small order cannot.

        >>> SealingKey.is_public("AAAA")
        False
        """
        parts = _primitives()
        try:
            parts.x25519.X25519PrivateKey.generate().exchange(
                parts.x25519.X25519PublicKey.from_public_bytes(_data(text))
            )
        except ValueError:
            return False
        return True

    def seal(self, to: str, payload: bytes, context: bytes) -> bytes:
        """The payload as JSON that only `to` can read, and that only this key can have made.

        >>> alice, bob = SealingKey.generate(), SealingKey.generate()
        >>> alice.seal(bob.public, b"1", b"").startswith(b'{"sealed"')
        True
        """
        parts = _primitives()
        once = parts.x25519.X25519PrivateKey.generate()
        once_public = once.public_key().public_bytes_raw()
        recipient = parts.x25519.X25519PublicKey.from_public_bytes(_data(to))
        secret = _derive(once.exchange(recipient) + self._key.exchange(recipient), once_public, context)
        nonce = os.urandom(12)
        box = nonce + parts.aead(secret).encrypt(nonce, payload, context)
        return b'%b,"once":"%b","box":"%b"}' % (SEALED, _text(once_public).encode(), _text(box).encode())

    def open(self, by: str, sealed: bytes, context: bytes) -> bytes:
        """The content. Raises CannotOpen unless `by` sealed it to this key in this context.

        >>> alice, bob = SealingKey.generate(), SealingKey.generate()
        >>> bob.open(alice.public, alice.seal(bob.public, b"1", b"a"), b"b")
        Traceback (most recent call last):
        relay.client.errors.CannotOpen: it was sealed by another key, to another key, or was changed
        """
        from cryptography.exceptions import InvalidTag

        parts = _primitives()
        try:
            found = msgspec.json.decode(sealed, type=_Sealed)
            once_public, box = _data(found.once), _data(found.box)
            once = parts.x25519.X25519PublicKey.from_public_bytes(once_public)
            sender = parts.x25519.X25519PublicKey.from_public_bytes(_data(by))
            secret = _derive(self._key.exchange(once) + self._key.exchange(sender), once_public, context)
            opened: bytes = parts.aead(secret).decrypt(box[:12], box[12:], context)
        except (InvalidTag, ValueError, RecursionError):
            raise CannotOpen("it was sealed by another key, to another key, or was changed") from None
        return opened


class _Sealed(msgspec.Struct):
    """A sealed payload: the public half of a key of its own, and what is in the box."""

    once: str
    box: str


def _derive(shared: bytes, salt: bytes, context: bytes) -> bytes:
    parts = _primitives()
    secret: bytes = parts.hkdf(parts.hashes.SHA256(), 32, salt, _INFO + context).derive(shared)
    return secret
