"""The books: what every client of the torture said and heard. The checker knows nothing else of them."""

import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Frame = dict[str, Any]
LEAVES = frozenset({"ack", "reply"})  # settlements that end a message


class Key(NamedTuple):
    """What names a message: addresses, and the id that its sender chose."""

    to: str
    sender: str
    id: str


@dataclass(slots=True)
class Delivery:
    """A message as one holder got it."""

    key: Key
    holder: str  # the session, or the consumer of a lease
    entry: str
    seq: int
    attempt: int
    was_stored: bool
    at: float
    at_ms: float
    number: int  # how many this holder had got before
    before_drained: bool
    fields: Frame


@dataclass(slots=True)
class Settlement:
    """What a holder asked to be done with an entry, and what it was told."""

    key: Key
    holder: str
    entry: str
    how: str
    asked_at: float
    fields: Frame
    answer: str = ""  # settled, or the code of the refusal; nothing if none came
    last: Delivery | None = None  # how the holder came by it


class Receipt(NamedTuple):
    """How a message ended, as a session of its sender was told."""

    session: str
    told: Frame
    at: float


@dataclass(slots=True)
class Message:
    """One message, from the first time that it was sent."""

    key: Key
    fields: Frame
    is_http: bool
    sent_at: float
    accepted_at: float | None = None
    refused: str = ""  # the code, if its sender gave up
    times_new: int = 0  # answers that called it new
    doubts: int = 0  # sendings without a clear answer
    cancel: str = ""  # asked, cancelled, busy or not_found
    cancel_at: float = 0.0  # when its sender was told so
    deliveries: list[Delivery] = field(default_factory=list)
    settlements: list[Settlement] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)

    @property
    def receipt(self) -> bool | str:
        """What its sender wants to be told: nothing, of ends other than expiry, or "all"."""
        wanted: bool | str = self.fields.get("receipt", not self.is_http)
        return wanted

    @property
    def known_until(self) -> float:
        """When a client last said or heard something of it."""
        said = [one.asked_at for one in self.settlements]
        heard = [one.at for one in self.deliveries] + [one.at for one in self.receipts]
        return max(self.sent_at, self.accepted_at or 0.0, self.cancel_at, *said, *heard)

    @property
    def thread(self) -> tuple[str, str, str]:
        return self.key.to, self.key.sender, self.fields.get("thread", "")


@dataclass(frozen=True, slots=True)
class Breach:
    """A promise that was broken."""

    promise: str
    what: str
    key: Key | None = None


@dataclass(slots=True)
class Session:
    """One WebSocket, as long as it had a name."""

    address: str
    name: str
    mode: str
    began_at: float
    ended_at: float = float("inf")
    epochs: list[tuple[float, str]] = field(default_factory=list)  # when it was told which


class Books:
    """Everything that was sent, heard and asked."""

    def __init__(self) -> None:
        self.messages: dict[Key, Message] = {}
        self.replies: dict[Key, list[Delivery]] = defaultdict(list)  # by request; the relay makes these messages itself
        self.sessions: dict[str, Session] = {}
        self.breaches: list[Breach] = []
        self.counts: Counter[str] = Counter()
        self.absences: dict[str, list[tuple[float, float]]] = defaultdict(list)  # of agents that stayed away on purpose
        self._received: Counter[str] = Counter()  # by holder

    def sent(self, key: Key, fields: Frame, is_http: bool) -> Message:
        """Notes a sending, the first or another one."""
        if key not in self.messages:
            self.messages[key] = Message(key, fields, is_http, time.monotonic())
        self.counts["sent"] += 1
        return self.messages[key]

    def accepted(self, key: Key, is_new: bool) -> None:
        message = self.messages[key]
        self.counts["accepted" if message.accepted_at is None else "duplicate"] += 1
        message.accepted_at = message.accepted_at or time.monotonic()
        message.times_new += is_new
        if message.times_new > 1:
            self.breach("stored once", "was accepted as new twice", key)

    def delivered(self, to: str, holder: str, frame: Frame, before_drained: bool = False) -> Delivery:
        key = Key(to, frame["from"], frame["id"])
        one = Delivery(
            *(key, holder, frame["entry"], frame["seq"], frame["attempt"], frame["was_stored"]),
            *(time.monotonic(), time.time() * 1_000, self._received[holder], before_drained, frame),
        )
        self._received[holder] += 1
        self.counts["delivered"] += 1
        if frame["id"].startswith("reply:"):
            self.replies[Key(frame["from"], to, frame["reply_to"])].append(one)
        elif key not in self.messages:
            self.breach("tenants apart", f"came to {to} and was never sent there", key)
        else:
            self._add(self.messages[key], one)
        return one

    def _add(self, message: Message, delivery: Delivery) -> None:
        self.counts["redelivered"] += bool(message.deliveries)
        message.deliveries.append(delivery)
        if delivery.fields["payload"] != message.fields["payload"]:
            self.breach("payloads unchanged", "came with another payload", message.key)

    def asked(self, delivery: Delivery, how: str, fields: Frame) -> Settlement:
        asked = Settlement(delivery.key, delivery.holder, delivery.entry, how, time.monotonic(), fields, last=delivery)
        message = self.messages.get(delivery.key)
        if message is not None:
            message.settlements.append(asked)
        self.counts[how] += 1
        return asked

    def received_receipts(self, sender: str, session: str, receipts: list[Frame]) -> None:
        for receipt in receipts:
            self.counts["receipts"] += 1
            key = Key(receipt["to"], sender, receipt["id"])
            if key in self.messages:
                self.messages[key].receipts.append(Receipt(session, receipt, time.monotonic()))
            else:
                self.breach("tenants apart", f"{sender} got a receipt of what it never sent", key)

    def breach(self, promise: str, what: str, key: Key | None = None) -> None:
        self.breaches.append(Breach(promise, what, key))
