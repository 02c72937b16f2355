"""Storing, delivering and ending messages, as the relay does it."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from relay.client import payloads
from relay.testing.clock import HandClock
from relay.testing.mailbox import Entry, Mailbox, Task

if TYPE_CHECKING:
    from relay.testing.session import FakeSession

RETRY_S = (10.0, 600.0)
ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
Refusal = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of the fake relay."""

    mailbox_max_messages: int
    max_payload_bytes: int
    message_ttl_s: float
    dedup_window_s: float


def refusal(code: str, message: str, retryable: bool = False, **details: Any) -> Refusal:
    return {"code": code, "message": message, "retryable": retryable, **details}


def tenant_of(address: str) -> str:
    return address.partition("/")[0]


def whole(name: str, tenant: str) -> str:
    """The address of an agent that may be named without its tenant."""
    return name if "/" in name else f"{tenant}/{name}"


class Post:
    """Everything that is stored. One relay has one; a wipe makes a new one."""

    def __init__(self, clock: HandClock, limits: Limits) -> None:
        self.clock = clock
        self._limits = limits
        self.mailboxes: dict[str, Mailbox] = {}
        self.sessions: defaultdict[str, list[FakeSession]] = defaultdict(list)
        self.ended: dict[tuple[str, str, str], tuple[str, float, int]] = {}
        self.receipts: defaultdict[str, list[tuple[int, dict[str, Any]]]] = defaultdict(list)
        self.tasks: dict[tuple[str, str], Task] = {}
        self.blocks: defaultdict[str, set[str]] = defaultdict(set)
        self.seqs: defaultdict[tuple[str, str, str], int] = defaultdict(int)
        self.news: list[Callable[[], None]] = []  # called whenever anything has ended
        self._numbers = 0

    def mailbox(self, address: str) -> Mailbox:
        return self.mailboxes.setdefault(address, Mailbox(address))

    def _next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    # -- in

    def send(self, sender: str, message: dict[str, Any]) -> str | Refusal:
        """The outcome of a message: stored, duplicate, or a refusal."""
        to = message.get("to") or ""
        is_named = bool(to) and set(to.replace("/", "", 1)) <= ALLOWED
        if message.get("payload") is None or not message.get("id") or not is_named:
            return refusal("malformed", "id, to and payload are needed")
        to = whole(to, tenant_of(sender))
        if tenant_of(to) != tenant_of(sender):
            return refusal("forbidden", "the recipient is of another tenant")
        if len(bytes(message["payload"])) > self._limits.max_payload_bytes:
            return refusal("too_large", "the payload is too large", max=self._limits.max_payload_bytes)
        return self._accept(sender, to, message)

    def _accept(self, sender: str, to: str, message: dict[str, Any]) -> str | Refusal:
        now, box = self.clock.now(), self.mailbox(to)
        ended = self.ended.get((to, sender, message["id"]))
        if box.find(sender, message["id"]) is not None or (ended and ended[1] + self._limits.dedup_window_s > now):
            return "duplicate"
        if sender in self.blocks[to]:
            return "stored"
        if len(box.entries) >= self._limits.mailbox_max_messages:
            counts = {
                "depth": len(box.entries),
                "limit": self._limits.mailbox_max_messages,
                "bytes": 0,
                "bytes_limit": 2**26,
            }
            return refusal("queue_full", "the mailbox is full", True, retry_after_ms=1_000, **counts)
        self._store(box, sender, message, now)
        return "stored"

    def _store(self, box: Mailbox, sender: str, message: dict[str, Any], now: float) -> None:
        number = self._next_number()
        thread = (sender, box.address, message.get("thread") or "")
        self.seqs[thread] += 1
        lives_s = min(self._limits.message_ttl_s, message.get("ttl_s", self._limits.message_ttl_s))
        entry = Entry(f"{round(now * 1_000)}-{number}", number, sender, message, self.seqs[thread], now, now + lives_s)
        box.add(entry)
        self.clock.call_later(lives_s, lambda: self.expire(box, entry))
        if message.get("request") and (sender, entry.id) not in self.tasks:
            self.tasks[sender, entry.id] = Task(box.address)
        self._delay(box, entry, message.get("delay_s", 0))
        self.pump(box)

    def _delay(self, box: Mailbox, entry: Entry, delay_s: float) -> None:
        entry.stop_timer()
        if delay_s > 0:
            entry.ready_at = self.clock.now() + delay_s
            entry.timer = self.clock.call_later(delay_s, lambda: self.pump(box))

    # -- out

    def pump(self, box: Mailbox) -> None:
        """Delivers the next messages to sessions with room."""
        for session in self.sessions[box.address]:
            room = session.window - len(session.held)
            taken = box.waiting(self.clock.now())[:room] if room > 0 else []
            for entry in taken:
                entry.holder = session
                session.held.add(entry)
                self._time_hold(box, entry, session)
            if taken:
                session.deliver(taken)

    def _time_hold(self, box: Mailbox, entry: Entry, session: "FakeSession", extend_s: float | None = None) -> None:
        entry.stop_timer()
        hold_s = entry.message.get("ack_timeout_s") or session.ack_timeout_s
        if hold_s:
            limit_s = hold_s if extend_s is None else extend_s
            entry.timer = self.clock.call_later(limit_s, lambda: self.fail(box, entry, "ack timeout", True, 0))

    def release(self, entry: Entry) -> None:
        if entry.holder is not None:
            entry.holder.held.discard(entry)
            entry.holder = None
        entry.stop_timer()

    def touch(self, box: Mailbox, entry: Entry, extend_s: float) -> None:
        if entry.timer is not None and entry.holder is not None:
            self._time_hold(box, entry, entry.holder, extend_s)

    def fail(self, box: Mailbox, entry: Entry, reason: str, retry: bool, delay_s: float | None) -> None:
        entry.failures += 1
        self.release(entry)
        most = entry.message.get("max_attempts", 0)
        if not retry or (most and entry.failures >= most):
            box.dead.append(entry)
            self.end(box, entry, "dead", reason)
            return
        if delay_s is None:
            delay_s = min(RETRY_S[1], RETRY_S[0] * 2 ** (entry.failures - 1))
        self._delay(box, entry, delay_s)
        self.pump(box)

    # -- ends

    def expire(self, box: Mailbox, entry: Entry) -> None:
        if box.entries.get(entry.handle) is entry:
            self.end(box, entry, "expired")

    def end(self, box: Mailbox, entry: Entry, state: str, reason: str = "") -> None:
        """It leaves the mailbox, and its sender is told."""
        holder = entry.holder
        self.release(entry)
        box.remove(entry)
        attempt = entry.failures + (1 if state == "acked" else 0) or 1
        self.ended[box.address, entry.sender, entry.id] = (state, self.clock.now(), attempt)
        wanted = entry.message.get("receipt", True)
        if state != "cancelled" and (wanted == "all" or (wanted and state != "expired")):
            was_stored = holder is not None and entry.number <= holder.began
            found = {"state": {"acked": "delivered"}.get(state, state), "attempt": attempt, "was_stored": was_stored}
            self._receipt(box, entry, found, reason)
        self._tell()
        self.pump(box)

    def _receipt(self, box: Mailbox, entry: Entry, found: dict[str, Any], reason: str) -> None:
        now_ms = round(self.clock.now() * 1_000)
        found |= {"id": entry.id, "to": box.address, "at_ms": now_ms}
        found["latency_ms"] = now_ms - round(entry.accepted_at * 1_000)
        if reason:
            found["reason"] = reason
        self.receipts[entry.sender].append((self._next_number(), found))
        for session in self.sessions[entry.sender]:
            session.tell_receipts()

    def _tell(self) -> None:
        news, self.news = self.news, []
        for callback in news:
            callback()

    # -- replies

    def reply(self, box: Mailbox, entry: Entry, payload: msgspec.Raw, more: bool) -> None:
        task = self.tasks.setdefault((entry.sender, entry.id), Task(box.address))
        value = payloads.plain(bytes(payload))
        if more:
            task.parts.append(value)
        else:
            task.reply = value
        if not task.by_http:
            self._send_reply(box, entry, payload, more)
        if more:
            self._tell()
        else:
            self.end(box, entry, "acked")

    def _send_reply(self, box: Mailbox, entry: Entry, payload: msgspec.Raw, more: bool) -> None:
        message = {
            "id": f"reply:{entry.id}:{self._next_number()}",
            "to": entry.sender,
            "payload": payload,
            "receipt": False,
        }
        message |= {"reply_to": entry.id, "ttl_s": entry.expires_at - self.clock.now()}
        if more:
            message["more"] = True
        self._store(self.mailbox(entry.sender), box.address, message, self.clock.now())

    def state_of(self, sender: str, to: str, id: str) -> tuple[str, int] | None:
        """Where a message is, and at which attempt."""
        entry = self.mailbox(to).find(sender, id)
        if entry is not None:
            is_delayed = entry.ready_at > self.clock.now()
            state = "held" if entry.holder else "delayed" if is_delayed else "queued"
            return state, entry.failures + 1
        ended = self.ended.get((to, sender, id))
        return (ended[0], ended[2]) if ended else None
