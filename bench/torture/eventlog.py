"""The event log, as the store has it at the end: the lives of messages, read without the relay."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import redis

from bench.torture.books import Key
from bench.torture.topology import Client

FINAL = frozenset({"acked", "expired", "dead", "cancelled"})
HOLD_ENDS = frozenset({"released", "overdue", "nacked"})
STEPS = HOLD_ENDS | {"accepted", "taken", "touched", "replied"}  # what happens to a message in a mailbox before its end
COLUMNS = (
    *("kind", "at_ms", "entry", "seq", "attempt", "who", "instance", "reason", "accepted_at", "taken_at"),
    *("tenant", "to", "sender", "id", "type", "thread", "priority", "bytes"),
)
PAGE = 1_000


@dataclass(frozen=True, slots=True)
class Event:
    """One transition of a message, as the log of its shard has it."""

    kind: str
    at_ms: int
    entry: str
    seq: int
    attempt: int
    who: str
    reason: str
    thread: str
    key: Key


Lives = dict[Key, list[Event]]


class EventLog:
    """Follows the logs while the run goes on: a server that was nearly full has cut their beginnings in the end."""

    def __init__(self) -> None:
        self._entries: dict[str, dict[str, list[str]]] = defaultdict(dict)  # stream -> entry -> its events
        self._read_from: dict[str, Client] = {}  # stream -> the server that had it last

    def read(self, clients: list[Client]) -> None:
        """Reads on. What a server that does not answer has comes with the next call, or from its successor."""
        for client in clients:
            client.set_response_callback("XRANGE", _as_it_is)
            try:
                for name in sorted(client.scan_iter(match="relay:{s*}:events", count=1_000)):
                    self._read(client, name)
            except redis.RedisError:
                continue

    def _read(self, client: Client, name: str) -> None:
        if self._read_from.get(name) is client:
            self._entries[name].update(_entries(client, name, f"({next(reversed(self._entries[name]))}"))
        else:
            self._read_again(client, name)

    def _read_again(self, client: Client, name: str) -> None:
        """All that a server has counts, from its first entry on: it does not have what a failover has undone."""
        now = dict(_entries(client, name, "-"))
        first = place(next(iter(now)))
        cut = {id: texts for id, texts in self._entries[name].items() if place(id) < first}
        self._entries[name] = cut | now
        self._read_from[name] = client

    def lives(self, clients: list[Client]) -> Lives:
        """Every event of every message, in the order in which they happened, as these servers have it."""
        self._read_from.clear()
        self.read(clients)
        lives: Lives = defaultdict(list)
        for entries in self._entries.values():
            for event in (_parsed(text) for texts in entries.values() for text in texts):
                if event is not None:
                    lives[event.key].append(event)
        return lives


def place(entry: str) -> tuple[int, int]:
    """Where an entry is in its stream."""
    ms, _, number = entry.partition("p")[0].partition("-")
    return int(ms), int(number)


def _as_it_is(rows: Any, **_: Any) -> Any:
    """redis-py would make a dictionary of the fields, and all of them have the same name."""
    return rows


def _entries(client: Client, name: str, after: str) -> Iterator[tuple[str, list[str]]]:
    """Entries with their events: a field for each event, all of the same name."""
    while rows := client.execute_command("XRANGE", name, after, "+", "COUNT", PAGE):
        yield from ((id, fields[1::2]) for id, fields in rows)
        after = f"({rows[-1][0]}"


def _parsed(text: str) -> Event | None:
    column = dict(zip(COLUMNS, text.split("\t"), strict=True))
    if not column["id"]:
        return None  # of an agent, not of a message
    tenant = column["tenant"]
    key = Key(f"{tenant}/{column['to']}", f"{tenant}/{column['sender']}", column["id"])
    seq, attempt = int(column["seq"] or 0), int(column["attempt"] or 0)
    who, reason, thread = column["who"], column["reason"], column["thread"]
    return Event(column["kind"], int(column["at_ms"]), column["entry"], seq, attempt, who, reason, thread, key)
