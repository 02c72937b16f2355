"""The event log, as the store has it at the end: the lives of messages, read without the relay."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import redis

from bench.torture.books import Key
from bench.torture.topology import Client

FINAL = frozenset({"acked", "expired", "dead", "cancelled"})
HOLD_ENDS = frozenset({"released", "overdue", "nacked"})
STEPS = HOLD_ENDS | {"accepted", "taken", "touched", "replied"}  # what happens to a message in a mailbox before its end
REGRESSED = "regressed"  # of a shard: `entry` is the last that it has kept, `reason` the newest that was known
COLUMNS = (
    *("kind", "entry", "seq", "attempt", "who", "reason", "held_ms"),
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
        self._entries: dict[str, dict[str, str]] = defaultdict(dict)  # stream -> entry -> its lines
        self._read_from: dict[str, Client] = {}  # stream -> the server that had it last

    def read(self, clients: list[Client]) -> None:
        """Reads on. What a server that does not answer has comes with the next call, or from its successor."""
        for client in clients:
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
        cut = {id: lines for id, lines in self._entries[name].items() if place(id) < first}
        self._entries[name] = cut | now
        self._read_from[name] = client

    def lives(self, clients: list[Client]) -> Lives:
        """Every event of every message, in the order in which they happened, as these servers have it."""
        self._read_from.clear()
        self.read(clients)
        lives: Lives = defaultdict(list)
        for entries in self._entries.values():
            for event in (event for lines in entries.values() for event in _events(lines)):
                lives[event.key].append(event)
        return lives

    def regressed(self) -> list[tuple[int, int, str, str]]:
        """Where it says that a shard has gone back in time: the shard, at_ms, the last entry kept, the newest known."""
        found = []
        for name, entries in self._entries.items():
            for lines in entries.values():
                first, *rest = lines.split("\n")
                shard, at_ms = int(name.split(":")[1].strip("{s}")), int(first.partition("\t")[0])
                columns = [dict(zip(COLUMNS, line.split("\t"), strict=False)) for line in rest]
                found += [(shard, at_ms, one["entry"], one["reason"]) for one in columns if one["kind"] == REGRESSED]
        return found


def place(entry: str) -> tuple[int, int]:
    """Where an entry is in its stream."""
    ms, _, number = entry.partition("p")[0].partition("-")
    return int(ms), int(number)


def _entries(client: Client, name: str, after: str) -> Iterator[tuple[str, str]]:
    """Entries with their lines: all events of a script call are in one field."""
    while rows := client.xrange(name, after, "+", PAGE):
        yield from ((id, fields["e1"]) for id, fields in rows)
        after = f"({rows[-1][0]}"


def _events(lines: str) -> Iterator[Event]:
    """What happened to messages; what happened to agents is left out."""
    first, *rest = lines.split("\n")
    at_ms, instance = first.split("\t")
    for line in rest:
        column = defaultdict(str, zip(COLUMNS, line.split("\t"), strict=False))
        if column["id"]:
            yield _event(int(at_ms), instance, column)


def _event(at_ms: int, instance: str, column: dict[str, str]) -> Event:
    tenant, who = column["tenant"], column["who"]
    key = Key(f"{tenant}/{column['to']}", f"{tenant}/{column['sender']}", column["id"])
    seq, attempt = int(column["seq"] or 0), int(column["attempt"] or 0)
    who = instance + who if who.startswith(".") else who
    return Event(column["kind"], at_ms, column["entry"], seq, attempt, who, column["reason"], column["thread"], key)
