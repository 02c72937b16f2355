"""Drafts: messages on their way into a mailbox, encoded once."""

from collections.abc import Callable
from operator import attrgetter
from typing import NamedTuple

import orjson
from msgspec import Raw

from relay.protocol.columns import escape
from relay.protocol.message import Message
from relay.settings import Settings
from relay.store.clock import Clock
from relay.store.keys import Keys, pair_key
from relay.store.mailbox.outcomes import AcceptOutcome

OnOutcome = Callable[["Draft", AcceptOutcome], None]


class Draft:
    """A message on its way into a mailbox. `answer` is called once, with what became of it."""

    __slots__ = (
        *("answer", "body", "expires_at", "id", "is_plain", "is_timed", "key", "opts", "priority", "rest", "sender"),
        *("shard", "size", "task_lives_ms", "thread", "thread_key", "to"),
    )

    answer: OnOutcome
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


class Options(NamedTuple):
    """What the options of a message, its session and the time of its arrival become in the store."""

    at_ms: int
    via: str
    priority: int
    expires_at: int
    is_timed: bool
    is_plain: bool
    task_lives_ms: int
    thread: str  # as a column
    rest: str  # of the head, but for the size
    opts: str
    end_of_body: bytes


class Drafting:
    """Encodes messages as the scripts store them. A payload is serialised here, once.

    Most messages have no options, and many come at once: for those the options are encoded once a millisecond.
    """

    def __init__(self, keys: Keys, settings: Settings, clock: Clock) -> None:
        self._keys = keys
        self._clock = clock
        self._ttl_ms = settings.message_ttl_s * 1_000
        self._none: Options | None = None  # the latest, of messages without options

    def lives_ms(self, message: Message) -> int:
        """How long a message may live: its own TTL, if that is shorter than the relay's."""
        return self._ttl_ms if message.ttl_s is None else int(min(self._ttl_ms, message.ttl_s * 1_000))

    def draft(
        self,
        sender: str,
        message: Message,
        answer: OnOutcome,
        *,
        via: str = "",
        reply_to_task_only: bool = False,
        is_part: bool = False,
    ) -> Draft:
        """`via` is the session that sent it, which hears first how it ends."""
        if is_part or _options_of(message) != _NO_OPTIONS:
            options = self._options(message, self._clock.now_ms(), via, reply_to_task_only, is_part)
        else:
            options = self._without_options(message, via)
        draft, to, id, payload = Draft(), message.to, message.id, bytes(message.payload)
        draft.sender, draft.to, draft.id, draft.thread, draft.answer = sender, to, id, message.thread, answer
        draft.expires_at, draft.is_timed, draft.is_plain = options.expires_at, options.is_timed, options.is_plain
        draft.priority, draft.task_lives_ms, draft.opts = options.priority, options.task_lives_ms, options.opts
        pair = pair_key(sender, to)
        draft.shard = self._keys.shard(to)
        size = draft.size = len(payload)
        draft.key = f"{pair}\t{id}"
        draft.thread_key = f"{pair}\t{options.thread}"
        draft.rest = f"{options.rest}{size}"
        draft.body = payload + options.end_of_body
        return draft

    def _without_options(self, message: Message, via: str) -> Options:
        now_ms, options = self._clock.now_ms(), self._none
        if options is None or options.at_ms != now_ms or options.via != via:
            options = self._none = self._options(message, now_ms, via)
        return options

    def _options(
        self, message: Message, now_ms: int, via: str, reply_to_task_only: bool = False, is_part: bool = False
    ) -> Options:
        priority, own_ttl_ms = message.priority, self.lives_ms(message)
        expires_at = now_ms + own_ttl_ms
        is_timed = own_ttl_ms < self._ttl_ms
        not_before = now_ms + int(message.delay_s * 1_000) if message.delay_s else 0
        ack_ms = int(message.ack_timeout_s * 1_000) if message.ack_timeout_s else 0
        timed = 1 if is_timed or not_before or ack_ms else 0
        request = (2 if reply_to_task_only else 1) if message.request else 0
        receipt = 2 if message.receipt == "all" else int(message.receipt)
        thread = escape(message.thread) if message.thread else ""
        kind = escape(message.type) if message.type else ""
        return Options(
            at_ms=now_ms,
            via=via,
            priority=priority,
            expires_at=expires_at,
            is_timed=is_timed,
            is_plain=not (priority or not_before or ack_ms),
            task_lives_ms=own_ttl_ms if request else 0,
            thread=thread,
            rest=f"{kind}\t{thread}\t{priority}\t",
            opts=f"{now_ms}\t{expires_at}\t{not_before}\t{message.max_attempts}\t{ack_ms}\t{receipt}\t{request}\t{timed}\t{via}",
            end_of_body=_end_of_body(message) + (b',"more":true' if is_part else b""),
        )


_RARE = ("type", "thread", "reply_to", "headers", "signature")
_options_of = attrgetter(*_RARE, "priority", "ttl_s", "delay_s", "max_attempts", "ack_timeout_s", "receipt", "request")
_NO_OPTIONS = _options_of(Message(id="", to="", payload=Raw(b"")))


def _end_of_body(message: Message) -> bytes:
    """What follows the payload."""
    rare = {name: value for name in _RARE if (value := getattr(message, name)) is not None}
    return b"," + orjson.dumps(rare)[1:-1] if rare else b""
