"""Signing and sealing: which keys are trusted, what is signed, and what only the recipient can read."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from relay.client import payloads
from relay.client.connection.frames import Delivery
from relay.client.errors import CannotOpen, KeyChanged
from relay.client.inbox.message import Message
from relay.client.journal import Journal
from relay.client.keys.keys import SEALED, Key, SealingKey

KEY_HEADER = "relay-key"
PIN = "INSERT OR REPLACE INTO relay_pins VALUES (?, ?)"
Registered = Callable[[str], Awaitable[dict[str, Any] | None]]


@dataclass(frozen=True, slots=True)
class Security:
    """The keys that an agent signs and seals with, and what it requires of others.

    `pins` are public keys that you know from elsewhere: `{"acme/bob": KEY}` to check signatures, and
    `{"seal:acme/bob": KEY}` to seal. For others the registered key is used, and pinned at first use.

    >>> security = Security(sign_with=Key.generate(), requires_signatures=True)
    >>> signed = relay.agent("dora", security=security)
    >>> async with signed:
    ...     sent = await signed.send("bob", "it was me")
    ...     async for message in bob.messages():
    ...         print(message.is_signed)
    ...         break
    True
    """

    sign_with: Key | None = None
    seal_with: SealingKey | None = None
    requires_signatures: bool = False
    pins: dict[str, str] = field(default_factory=dict)


def _framed(purpose: str, *fields: str | bytes) -> bytes:
    """Each field after its length, so that no two lists of fields have the same bytes, whatever is in them."""
    parts = [field.encode() if isinstance(field, str) else field for field in fields]
    return purpose.encode() + b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def signed_part(sender: str, to: str, id: str, kind: str, thread: str, reply_to: str, payload: bytes) -> bytes:
    """The signed bytes: everything that the recipient acts on. Both addresses are whole."""
    return _framed("relay-message-v1", sender, to, id, kind, thread, reply_to, payload)


def _context(sender: str, to: str, about: str) -> bytes:
    """A sealed payload is of use only from this sender, to this recipient, for this message or request."""
    return _framed("relay-seal-v1", sender, to, about)


def _sealing_claim(address: str, key: str) -> bytes:
    return _framed("relay-sealing-v1", address, key)


class _Card(msgspec.Struct):
    """What a card says about seals. Its owner writes what it likes into it."""

    sealing_key: str = ""
    sealing_signature: str = ""


def _card(registered: dict[str, Any] | None) -> _Card:
    try:
        return msgspec.convert((registered or {}).get("card") or {}, _Card)
    except msgspec.ValidationError:
        return _Card()


class Guard:
    """Trusts keys at first use, and refuses others after that."""

    def __init__(self, security: Security, journal: Journal, registered: Registered, me: Callable[[], str]) -> None:
        self._security = security
        self._journal = journal
        self._registered = registered
        self._me = me  # one's own address
        self._pins = dict(security.pins)

    async def open_pins(self) -> None:
        for name, key in await self._journal.rows("SELECT * FROM relay_pins"):
            self._pins.setdefault(name, key)

    def pin(self, name: str, key: str) -> None:
        self._pins[name] = key
        self._journal.put(PIN, (name, key))

    def card(self, address: str) -> dict[str, Any]:
        """What others need to seal to us, signed, so that the relay cannot replace the key."""
        sealing, signing = self._security.seal_with, self._security.sign_with
        if sealing is None:
            return {}
        card = {"sealing_key": sealing.public}
        if signing is not None:
            card |= {
                "signing_key": signing.public,
                "sealing_signature": signing.sign(_sealing_claim(address, sealing.public)),
            }
        return card

    # -- sending

    @property
    def signs(self) -> bool:
        return self._security.sign_with is not None

    def signature(self, to: str, id: str, fields: dict[str, Any], payload: bytes) -> str:
        """The signature of a message; its headers then name the key."""
        key = self._security.sign_with
        assert key is not None
        fields["headers"] = {**fields.get("headers", {}), KEY_HEADER: key.public}
        kind, thread, reply_to = (fields.get(name) or "" for name in ("type", "thread", "reply_to"))
        return key.sign(signed_part(self._me(), self.whole(to), id, kind, thread, reply_to, payload))

    async def seal(self, to: str, about: str, payload: bytes) -> bytes:
        """Raises CannotOpen if the recipient has no sealing key, KeyChanged if it is not the pinned one."""
        key = self._sealing_key()
        return key.seal(await self._sealing_key_of(to), payload, _context(self._me(), self.whole(to), about))

    def _sealing_key(self) -> SealingKey:
        if self._security.seal_with is None:
            raise CannotOpen("this agent has no sealing key: Security(seal_with=…)")
        return self._security.seal_with

    async def _sealing_key_of(self, address: str) -> str:
        address = self.whole(address)
        pinned = self._pins.get(f"seal:{address}")
        if pinned is not None:
            return pinned
        card = _card(await self._registered(address))
        key, signing = card.sealing_key, self._pins.get(address)
        if not SealingKey.is_public(key):
            raise CannotOpen(f"{address} has no sealing key in its card")
        if signing is not None and not Key.is_by(signing, card.sealing_signature, _sealing_claim(address, key)):
            raise KeyChanged(f"the sealing key of {address} is not signed by its pinned key")
        self.pin(f"seal:{address}", key)
        return key

    def whole(self, address: str) -> str:
        return address if "/" in address else f"{self._me().partition('/')[0]}/{address}"

    # -- receiving

    def needs_look(self, delivery: Delivery) -> bool:
        return delivery.signature is not None or self._security.requires_signatures or self._is_sealed(delivery)

    def _is_sealed(self, delivery: Delivery) -> bool:
        return self._security.seal_with is not None and bytes(delivery.payload).startswith(SEALED)

    async def open(self, message: Message[Any]) -> None:
        """Raises CannotOpen or KeyChanged."""
        delivery = message._delivery
        await self._verify(message, delivery)
        if self._is_sealed(delivery):
            message._is_opened(await self.opened(delivery, delivery.reply_to or delivery.id))

    async def opened(self, delivery: Delivery, about: str, must_be_sealed: bool = False) -> bytes:
        """The payload, opened if it is sealed. Raises CannotOpen if it must be, and is not."""
        payload = bytes(delivery.payload)
        if not self._is_sealed(delivery):
            if must_be_sealed:
                raise CannotOpen("it is not sealed")
            return payload
        by = await self._sealing_key_of(delivery.sender)
        opened = self._sealing_key().open(by, payload, _context(delivery.sender, self._me(), about))
        if not payloads.is_json(opened):  # what is not sealed, the relay has looked at
            raise CannotOpen("there is no JSON in it")
        return opened

    async def _verify(self, message: Message[Any], delivery: Delivery) -> None:
        if delivery.signature is None:
            if self._security.requires_signatures:
                raise CannotOpen("it is not signed")
            return
        shown = (delivery.headers or {}).get(KEY_HEADER, "")
        key = await self._signing_key_of(delivery.sender, shown)
        names = (delivery.id, delivery.type or "", delivery.thread or "", delivery.reply_to or "")
        signed = signed_part(delivery.sender, self._me(), *names, bytes(delivery.payload))
        if not Key.is_by(key, delivery.signature, signed):
            raise CannotOpen("its signature is wrong")
        if delivery.sender not in self._pins:
            self.pin(delivery.sender, key)
        message.is_signed = True

    async def _signing_key_of(self, address: str, shown: str) -> str:
        """The pinned key, else the registered one, else the one that came along."""
        pinned = self._pins.get(address)
        if pinned is None:
            pinned = str(((await self._registered(address)) or {}).get("key") or shown)
        if shown and shown != pinned:
            raise KeyChanged(f"{address} signs with another key than before")
        return pinned

    def seal_reply(self, message: Message[Any], payload: bytes) -> bytes:
        """A sealed request gets a sealed reply."""
        if not message.was_sealed:
            return payload
        key = self._pins[f"seal:{message.sender}"]
        return self._sealing_key().seal(key, payload, _context(self._me(), message.sender, message.id))
