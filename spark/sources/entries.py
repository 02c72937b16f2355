"""Entries of mailboxes and dead-letter boxes as rows of MAILBOXES."""

from typing import Any

from spark.sources.parsing import unescape

Row = dict[str, Any]

_OWNERS = {b"~ready": "ready", b"~parked": "parked"}
_ONLY_OF_THE_DEAD = ("died_at", "reason", "history")


def message(shard: int, stream_id: str, lane: int, fields: list[bytes], pending: Any) -> Row:
    """A message in a mailbox; `pending` is its row of XPENDING, or None while it waits."""
    owner = pending[1] if pending else None
    state = _OWNERS.get(owner, "held") if owner else "waiting"
    return {
        **dict.fromkeys(_ONLY_OF_THE_DEAD),
        **_content(_named(fields)),
        "shard": shard,
        "box": "mailbox",
        "entry": f"{stream_id}p{lane}" if lane else stream_id,
        "state": state,
        "owner": owner.decode() if owner and state == "held" else None,
        "attempt": pending[3] if pending else 1,
    }


def dead_letter(shard: int, fields: list[bytes]) -> Row:
    """A message in a dead-letter box, with how it came there."""
    named = _named(fields)
    return {
        **_content(named),
        "shard": shard,
        "box": "dead",
        "entry": named["entry"],
        "state": "dead",
        "owner": None,
        "attempt": int(named["attempts"]),
        "died_at": int(named["at_ms"]),
        "reason": unescape(named["reason"]) or None,
        "history": named["history"] or None,
    }


def _named(fields: list[bytes]) -> dict[str, str]:
    text = [field.decode() for field in fields]
    return dict(zip(text[::2], text[1::2], strict=True))


def _content(named: dict[str, str]) -> Row:
    """The columns in head, opts and body of an entry; shard.lua describes their format."""
    tenant, to, sender, message_id, kind, thread, priority, size = named["head"].split("\t")
    seq, accepted_at, expires_at, not_before, max_attempts, ack_ms, receipt, request = map(
        int, named["opts"].split("\t")[:8]
    )
    return {
        "tenant": tenant,
        "to": to,
        "from": sender,
        "id": message_id,
        "type": unescape(kind) or None,
        "thread": unescape(thread) or None,
        "priority": int(priority),
        "bytes": int(size),
        "seq": seq,
        "accepted_at": accepted_at,
        "expires_at": expires_at,
        "not_before": not_before,
        "max_attempts": max_attempts,
        "ack_timeout_ms": ack_ms,
        "receipt": receipt,
        "request": request,
        "body": named["body"],
    }
