"""Deliveries as clients get them."""

from relay.protocol.quoting import quoted
from relay.store.record.body import parted
from relay.store.record.taken import Taken, came_at_ms


def deliver_frame(rows: list[Taken], backlog_end: str) -> bytes:
    """The frame with these deliveries; `backlog_end` is the last entry that was there when the session began.

    What they say of the time before the session is noted on the rows, for the receipts."""
    end_ms = came_at_ms(backlog_end)
    for row in rows:
        entry, accepted_ms = row.entry, came_at_ms(row.entry)
        row.was_stored = accepted_ms < end_ms or (accepted_ms == end_ms and _number(entry) <= _number(backlog_end))
    return b'{"op":"deliver","messages":[%b]}' % b",".join(map(delivery, rows))


def delivery(row: Taken, lock_token: str = "") -> bytes:
    """One delivery as JSON, from head, opts and body."""
    tenant, _, sender, id, _, _, priority, size = row.head.split("\t")
    seq, sent_at, expires_at, _, _, _, _, request, *_ = row.opts.split("\t")
    payload, rest = parted(row.body, int(size))
    was_stored = "true" if row.was_stored else "false"
    token = f'"lock_token":{quoted(lock_token)},' if lock_token else ""
    before = (
        f'{{"entry":"{row.entry}","seq":{seq},"attempt":{row.attempt},"was_stored":{was_stored},{token}'
        f'"id":{quoted(id)},"from":"{tenant}/{sender}","priority":{priority},"payload":'
    )
    behind = f',"sent_at_ms":{sent_at},"expires_at_ms":{expires_at},"request":{"false" if request == "0" else "true"}'
    return b"%b%b%b%b}" % (before.encode(), payload, behind.encode(), rest)


def _number(entry: str) -> int:
    """The number of an entry within its millisecond; what follows it names the lane."""
    return int(entry.partition("-")[2].partition("p")[0])
