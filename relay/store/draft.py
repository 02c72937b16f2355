"""Drafts: messages on their way into a mailbox, encoded once."""

from collections.abc import Callable
from operator import attrgetter

import orjson

from relay.protocol.columns import escape
from relay.protocol.message import Message
from relay.settings import Settings
from relay.store.clock import Clock
from relay.store.keys import Keys, pair_key
from relay.store.outcomes import AcceptOutcome

Answer = Callable[["Draft", AcceptOutcome], None]


class Draft:
    """A message on its way into a mailbox. `answer` is called once, with what became of it."""

    __slots__ = (
        *("answer", "body", "expires_at", "id", "is_plain", "is_timed", "key", "opts", "priority", "rest", "sender"),
        *("shard", "size", "task_lives_ms", "thread", "thread_key", "to"),
    )

    answer: Answer
    sender: str
    id: str
    to: str
    priority: int
    thread: str | None
    shard: int
    task_lives_ms: int  # of a request: how long its task is kept
    # What the scripts store: see shard.lua.
    key: str
    thread_key: str
    rest: str  # of the head, behind the key
    opts: str  # but for the sequence number
    body: bytes
    size: int  # of the payload
    expires_at: int
    is_timed: bool  # its TTL is shorter than the relay's
    is_plain: bool  # whether accept_plain.lua may store it


class Drafting:
    """Encodes messages as the scripts store them. A payload is serialised here, once."""

    def __init__(self, keys: Keys, settings: Settings, clock: Clock) -> None:
        self._keys = keys
        self._clock = clock
        self._ttl_ms = settings.message_ttl_s * 1_000

    def lives_ms(self, message: Message) -> int:
        """How long a message may live: its own TTL, if that is shorter than the relay's."""
        return self._ttl_ms if message.ttl_s is None else int(min(self._ttl_ms, message.ttl_s * 1_000))

    def draft(
        self,
        sender: str,
        message: Message,
        answer: Answer,
        *,
        via: str = "",
        reply_to_task_only: bool = False,
        is_part: bool = False,
    ) -> Draft:
        """`via` is the session that sent it, which hears first how it ends."""
        draft, now_ms = Draft(), self._clock.now_ms()
        to = draft.to = message.to
        priority = draft.priority = message.priority
        draft.sender, draft.id, draft.thread, draft.answer = sender, message.id, message.thread, answer
        draft.shard = self._keys.shard(to)
        own_ttl_ms = self.lives_ms(message)
        expires_at = draft.expires_at = now_ms + own_ttl_ms
        is_timed = draft.is_timed = own_ttl_ms < self._ttl_ms
        not_before = now_ms + int(message.delay_s * 1_000) if message.delay_s else 0
        ack_ms = int(message.ack_timeout_s * 1_000) if message.ack_timeout_s else 0
        draft.is_plain = not (priority or not_before or ack_ms)
        timed = 1 if is_timed or not_before or ack_ms else 0
        request = (2 if reply_to_task_only else 1) if message.request else 0
        draft.task_lives_ms = own_ttl_ms if request else 0
        receipt = 2 if message.receipt == "all" else int(message.receipt)
        payload = bytes(message.payload)
        size = draft.size = len(payload)
        pair = pair_key(sender, to)
        thread = escape(message.thread) if message.thread else ""
        kind = escape(message.type) if message.type else ""
        draft.key = f"{pair}\t{message.id}"
        draft.thread_key = f"{pair}\t{thread}"
        draft.rest = f"{kind}\t{thread}\t{priority}\t{size}"
        draft.opts = (
            f"{now_ms}\t{expires_at}\t{not_before}\t{message.max_attempts}\t{ack_ms}\t{receipt}\t{request}\t{timed}"
            f"\t{via}"
        )
        draft.body = _body(sender, message, payload, now_ms, expires_at) + (b',"more":true' if is_part else b"")
        return draft


_RARE = ("type", "thread", "reply_to", "headers", "signature")
_rare_of = attrgetter(*_RARE)
_NONE_OF_THEM = (None,) * len(_RARE)


def _body(sender: str, message: Message, payload: bytes, now_ms: int, expires_at: int) -> bytes:
    """The fields of a delivery that never change, as JSON without its braces."""
    body = b'"id":%b,"from":"%b","priority":%d,"payload":%b,"sent_at_ms":%d,"expires_at_ms":%d,"request":%b' % (
        *(orjson.dumps(message.id), sender.encode(), message.priority, payload, now_ms, expires_at),
        b"true" if message.request else b"false",
    )
    rare = _rare_of(message)
    if rare != _NONE_OF_THEM:
        fields = {name: value for name, value in zip(_RARE, rare, strict=True) if value is not None}
        return b"%b,%b" % (body, orjson.dumps(fields)[1:-1])
    return body
