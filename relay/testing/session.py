"""A session of the fake relay: the frames of one agent, and what they do."""

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from relay.client.connection.credentials import claims
from relay.client.connection.frames import frame
from relay.testing.mailbox import Entry, Mailbox
from relay.testing.post import Post, Refusal, refusal, tenant_of, whole

if TYPE_CHECKING:
    from relay.testing.fake import FakeRelay

SHARED_ACK_TIMEOUT_S = 30.0
ENDS = {"acked": "delivered", "dead": "dead", "expired": "expired", "cancelled": "cancelled"}


class _Send(msgspec.Struct):
    messages: list[msgspec.Raw]


def _fields(text: bytes) -> dict[str, Any]:
    """Of a frame or of a message. Payloads stay as they are: not every reader can read them."""
    found = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    return {name: raw if name in ("payload", "messages") else msgspec.json.decode(raw) for name, raw in found.items()}


class FakeLink:
    """The client's end of a connection that needs no socket."""

    def __init__(self) -> None:
        self.session: FakeSession | None = None
        self._inbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._code: int | None = None
        self._is_over = False

    def write(self, text: bytes) -> None:
        if not self._is_over and self.session is not None:
            asyncio.get_running_loop().call_soon(self.session.receive, text)

    async def receive(self) -> bytes | None:
        return None if self._is_over and self._inbox.empty() else await self._inbox.get()

    @property
    def close_code(self) -> int | None:
        return self._code

    async def close(self) -> None:
        self.end(1_000)
        await asyncio.sleep(0)

    # -- the relay's end

    def tell(self, text: bytes) -> None:
        if not self._is_over:
            self._inbox.put_nowait(text)

    def end(self, code: int | None) -> None:
        if not self._is_over:
            self._is_over, self._code = True, code
            self._inbox.put_nowait(None)
            if self.session is not None:
                self.session.leave()


class FakeSession:
    """The relay's side of one connection."""

    def __init__(self, relay: "FakeRelay", link: FakeLink) -> None:
        self._relay = relay
        self._link = link
        self.address = ""
        self.scopes: set[str] = set()
        self.window = 50
        self.ack_timeout_s = 0.0
        self.mode = "exclusive"
        self.began = 0  # entries up to this number were there before
        self.held: set[Entry] = set()
        self.topics: set[str] = set()
        self._told_receipts = 0
        link.tell(frame("hello", protocol=1, instance="fake", nonce="bm9uY2U=", server_time_ms=self._now_ms()))

    def _now_ms(self) -> int:
        return round(self._relay.clock.now() * 1_000)

    @property
    def _post(self) -> Post:
        return self._relay.post

    @property
    def _box(self) -> Mailbox:
        return self._post.mailbox(self.address)

    def tell(self, op: str, **fields: Any) -> None:
        self._link.tell(frame(op, **fields))

    # -- its life

    def receive(self, text: bytes) -> None:
        said = _fields(text)
        if said["op"] == "auth":
            self._authenticate(said)
        elif self.address:
            getattr(self, f"_on_{said['op']}")(said, text)

    def _authenticate(self, said: dict[str, Any]) -> None:
        is_renewal = bool(self.address)
        try:
            self.address, self.scopes = self._relay.identities.of_auth(said)
        except PermissionError as error:
            self.tell("error", code="unauthorized", message=str(error), retryable=False)
            self._link.end(4501)
            return
        if token := said.get("token"):
            left_s = (claims(token).exp or 0) - self._relay.clock.now()
            self._relay.clock.call_later(left_s, lambda: self._check_token(token))
            self._token = token
        self.tell("welcome", agent=self.address, session="s", epoch=self._relay.epoch, window=self.window, protocol=1)
        if not is_renewal:
            self._begin(said)

    def _check_token(self, token: str) -> None:
        if token == self._token:
            self.close("token_expired", 4511)

    def _begin(self, said: dict[str, Any]) -> None:
        self.window = said.get("window", 50)
        registered = self._relay.registrations.get(self.address, {})
        self.mode = said.get("mode") or registered.get("mode") or "exclusive"
        shared_s = SHARED_ACK_TIMEOUT_S if self.mode == "shared" else 0.0
        self.ack_timeout_s = said.get("ack_timeout_s", shared_s)
        if card := said.get("card"):
            self._relay.registrations.setdefault(self.address, {})["card"] = card
        if "receive" not in self.scopes:
            self.window = 0
        elif self.mode == "exclusive":
            for other in list(self._post.sessions[self.address]):
                other.close("replaced", 4509)
        waiting = self._box.waiting(self._relay.clock.now()) if self.window else []
        self.began = max((entry.number for entry in self._box.entries.values()), default=0)
        self._box.is_known = True
        self.tell("queue_status", pending=len(waiting), bytes=0, oldest_ms=None)
        self._post.sessions[self.address].append(self)
        self._post.pump(self._box)
        self.tell("drained", delivered=len(self.held))
        self.tell_receipts()

    def leave(self) -> None:
        """However it ends: what it held comes again, uncounted."""
        if self in self._post.sessions[self.address]:
            self._post.sessions[self.address].remove(self)
            for entry in list(self.held):
                self._post.release(entry)
            self._post.pump(self._box)

    def close(self, word: str, code: int, retry_after_ms: int | None = None) -> None:
        again = {} if retry_after_ms is None else {"retry_after_ms": retry_after_ms}
        self.tell("closing", code=word, **again)
        self._link.end(code)

    def vanish(self) -> None:
        """The connection is cut without a word."""
        self._link.end(1006)

    # -- sending

    def _on_send(self, _: dict[str, Any], text: bytes) -> None:
        ids: list[str] = []
        duplicates: list[dict[str, Any]] = []
        refusals: list[Refusal] = []
        for raw in msgspec.json.decode(text, type=_Send).messages:
            message = _fields(bytes(raw))
            outcome = self._send(message)
            if isinstance(outcome, dict):
                refusals.append({"id": message.get("id"), "to": message.get("to"), **outcome})
            elif outcome == "stored":
                ids.append(message["id"])
            else:
                duplicates.append(message)
        if ids or duplicates:
            again = {"ended": self._ends(duplicates)} if duplicates else {}
            known = [message["id"] for message in duplicates]
            self.tell("accepted", ids=ids, duplicate_ids=known, **again, durability="memory")
        if refusals:
            self.tell("refused", refusals=refusals)

    def _ends(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """How those ended that are not in their mailbox any more."""
        found = []
        for message in messages:
            to = whole(message["to"], tenant_of(self.address))
            state, attempt = self._post.state_of(self.address, to, message["id"]) or ("", 0)
            if state in ENDS:
                found.append({"id": message["id"], "to": to, "state": ENDS[state], "attempt": attempt})
        return found

    def _send(self, message: dict[str, Any]) -> str | Refusal:
        if "send" not in self.scopes:
            return refusal("forbidden", "the token lacks the scope send")
        return self._post.send(self.address, message)

    def tell_receipts(self) -> None:
        found = [one for one in self._post.receipts[self.address] if one[0] > self._told_receipts]
        if found:
            self._told_receipts = found[-1][0]
            self.tell("receipts", cursor=f"{self._told_receipts}-0", receipts=[receipt for _, receipt in found])

    def _on_receipts_ack(self, said: dict[str, Any], __: bytes) -> None:
        told, _, _ = said["cursor"].partition("-")
        if not told.isdecimal():
            self.tell("error", **refusal("malformed", "no cursor of this relay"))
            return
        upto = int(told)
        self._post.receipts[self.address] = [one for one in self._post.receipts[self.address] if one[0] > upto]

    # -- receiving

    def deliver(self, entries: list[Entry]) -> None:
        self.tell("deliver", messages=[self._shown(entry) for entry in entries])

    def _shown(self, entry: Entry) -> dict[str, Any]:
        message = entry.message
        optional = ("type", "thread", "reply_to", "headers", "signature", "more")
        return {
            "entry": entry.handle,
            "id": entry.id,
            "from": entry.sender,
            "seq": entry.seq,
            "priority": entry.priority,
            "payload": message["payload"],
            "sent_at_ms": round(entry.accepted_at * 1_000),
            "expires_at_ms": round(entry.expires_at * 1_000),
            "attempt": entry.failures + 1,
            "was_stored": entry.number <= self.began,
            "request": bool(message.get("request")),
            **{name: message[name] for name in optional if message.get(name) is not None},
        }

    def _settle(self, said: dict[str, Any], do: Any) -> None:
        refusals, settled = [], []
        for handle in said.get("entries") or [said["entry"]]:
            entry = self._box.entries.get(handle)
            if entry is None or entry.holder is not self:
                code = "not_found" if entry is None else "lock_lost"
                refusals.append({"entry": handle, **refusal(code, "this session does not hold it")})
            else:
                do(entry)
                settled.append(handle)
        if refusals:
            self.tell("refused", refusals=refusals)
        if said.get("confirm") and settled:
            self.tell("settled", entries=settled)
        self._post.pump(self._box)

    def _on_ack(self, said: dict[str, Any], _: bytes) -> None:
        self._settle(said, lambda entry: self._post.end(self._box, entry, "acked"))

    def _on_nack(self, said: dict[str, Any], _: bytes) -> None:
        why, retry, delay_s = said.get("reason", ""), said.get("retry", True), said.get("delay_s")
        self._settle(said, lambda entry: self._post.fail(self._box, entry, why, retry, delay_s))

    def _on_release(self, said: dict[str, Any], _: bytes) -> None:
        self._settle(said, self._post.release)

    def _on_touch(self, said: dict[str, Any], _: bytes) -> None:
        self._settle(said, lambda entry: self._post.touch(self._box, entry, said.get("extend_s", 30)))

    def _on_reply(self, said: dict[str, Any], _: bytes) -> None:
        payload = said["payload"]
        entry = self._box.entries.get(said["entry"])
        if entry is not None and not entry.message.get("request"):
            self.tell("error", **refusal("malformed", "the entry is not a request"), entry=entry.handle)
            return
        more = bool(said.get("more"))
        self._settle(said, lambda found: self._post.reply(self._box, found, payload, more))

    # -- the rest

    def _on_ping(self, _: dict[str, Any], __: bytes) -> None:
        self.tell("pong", server_time_ms=self._now_ms())

    def _in_tenant(self, names: list[str]) -> list[str] | None:
        """Whole addresses; None, and an error, if one is of another tenant."""
        tenant = tenant_of(self.address)
        found = [whole(name, tenant) for name in names]
        if all(tenant_of(name) == tenant for name in found):
            return found
        self.tell("error", **refusal("forbidden", "agents of another tenant"))
        return None

    def _on_presence(self, said: dict[str, Any], _: bytes) -> None:
        names = self._in_tenant(said["agents"])
        if names is not None:
            self.tell("presence", agents={name: {"online": bool(self._post.sessions[name])} for name in names})

    def _on_block(self, said: dict[str, Any], _: bytes) -> None:
        names = self._in_tenant(said["agents"])
        if names is not None:
            self._post.blocks[self.address] |= set(names)
            self.tell("blocks", agents=sorted(self._post.blocks[self.address]))

    def _on_unblock(self, said: dict[str, Any], _: bytes) -> None:
        names = self._in_tenant(said["agents"])
        if names is not None:
            self._post.blocks[self.address] -= set(names)
            self.tell("blocks", agents=sorted(self._post.blocks[self.address]))

    def _on_sync(self, said: dict[str, Any], _: bytes) -> None:
        names = self._in_tenant([said["peer"]])
        if names is None:
            return
        thread = said.get("thread", "")
        sent, sent_waiting = self._side(self.address, names[0], thread)
        received, received_waiting = self._side(names[0], self.address, thread)
        pending = sent_waiting + received_waiting
        self.tell("sync_state", peer=names[0], thread=thread, sent=sent, received=received, pending=pending)

    def _side(self, sender: str, to: str, thread: str) -> tuple[dict[str, int], int]:
        last = self._post.seqs[sender, to, thread]
        waiting = [
            entry.seq
            for entry in self._post.mailbox(to).entries.values()
            if entry.sender == sender and (entry.message.get("thread") or "") == thread
        ]
        return {"last_seq": last, "settled_seq": min(waiting, default=last + 1) - 1}, len(waiting)

    def _on_subscribe(self, said: dict[str, Any], _: bytes) -> None:
        self.topics |= set(said["topics"])
        self.tell("subscribed", topics=sorted(self.topics))

    def _on_unsubscribe(self, said: dict[str, Any], _: bytes) -> None:
        self.topics -= set(said["topics"])
        self.tell("subscribed", topics=sorted(self.topics))

    def _on_publish(self, said: dict[str, Any], _: bytes) -> None:
        payload = said["payload"]
        for address, sessions in self._post.sessions.items():
            for session in sessions:
                if tenant_of(address) == tenant_of(self.address) and said["topic"] in session.topics:
                    session.tell("event", topic=said["topic"], **{"from": self.address}, payload=payload)
