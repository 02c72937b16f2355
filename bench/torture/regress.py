"""The store goes back in time: everybody must notice, nobody else may, and nothing of the lost time is left behind."""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

import redis

from bench.torture.books import Books, Breach, Frame
from bench.torture.eventlog import EventLog, Lives, place
from bench.torture.forks import Undoing, Undone
from bench.torture.processes import RelayProcess
from bench.torture.topology import Client

LINE = "store_regressed"  # in the log of every instance, for each shard that lacks something
ANOMALY = "store_regressed"
NOTICED = "going back is noticed"
NOTICED_WITHIN_S = 5.0  # of the time when it can be seen
SEEN_LATE_S = 2.0  # by the torture, which looks a few times a second
ALARM_WITHIN_S = 30.0  # later ones have another cause
GHOSTS_GONE_WITHIN_S = 10.0
SAME_TIME_S = 1.0  # an answer and a delivery of the same message


@dataclass(frozen=True, slots=True)
class Notice:
    """Somebody says that a shard has gone back."""

    who: str  # an instance, or nothing: the event log of the shard
    shard: int
    at: float
    last_kept: str
    newest_known: str


def notices(instances: Iterable[RelayProcess], log: EventLog) -> list[Notice]:
    """Everything that says so: lines of instances, and events."""
    ahead_s = time.time() - time.monotonic()
    lines = [(one.name, line) for one in instances for line in one.lines() if line["event"] == LINE]
    return [
        *(
            Notice(who, line["shard"], datetime.fromisoformat(line["at"]).timestamp() - ahead_s, *_ends(line))
            for who, line in lines
        ),
        *(Notice("", shard, at_ms / 1_000 - ahead_s, kept, known) for shard, at_ms, kept, known in log.regressed()),
    ]


def _ends(line: Frame) -> tuple[str, str]:
    return line["last_kept"], line["newest_known"]


def check_regress(books: Books, lives: Lives, undone: Undone, instances: list[str], said: list[Notice]) -> list[Breach]:
    """Every instance, the event log and every session say so within seconds; and none of them without a reason."""
    breaches = list(_false_alarms(books, undone, said))
    for undoing in undone.went_back():
        lost = lost_shards(books, lives, undone, undoing)
        for shard in sorted(lost):
            breaches += _noticed(undoing, shard, instances, said)
        if lost:
            breaches += _told(books, undoing)
    return breaches


def lost_shards(books: Books, lives: Lives, undone: Undone, undoing: Undoing) -> set[int]:
    """Those in which an accepted message of that time is unknown now."""
    return {
        undone.shard(key.to)
        for key, message in books.messages.items()
        if message.accepted_at is not None and undoing.began <= message.accepted_at <= undoing.ended
        if not any(event.kind == "accepted" for event in lives.get(key, []))
    } & undoing.shards


def _noticed(undoing: Undoing, shard: int, instances: list[str], said: list[Notice]) -> Iterator[Breach]:
    latest = undoing.back_at + NOTICED_WITHIN_S + SEEN_LATE_S
    by_who: dict[str, list[Notice]] = defaultdict(list)
    for one in said:
        if one.shard == shard and undoing.began <= one.at <= undoing.back_at + ALARM_WITHIN_S:
            by_who[one.who].append(one)
    for who in ("", *instances):
        name = who or f"the event log of shard {shard}"
        if not by_who[who]:
            yield Breach(NOTICED, f"{name} does not say that shard {shard} has gone back")
        elif (first := min(one.at for one in by_who[who])) > latest:
            yield Breach(NOTICED, f"{name} said so {first - undoing.back_at:.1f} s after shard {shard} was back")
        for one in by_who[who]:
            if not one.last_kept or place(one.last_kept) >= place(one.newest_known):
                yield Breach(NOTICED, f"{name} says of shard {shard}: kept {one.last_kept!r} of {one.newest_known!r}")


def _told(books: Books, undoing: Undoing) -> Iterator[Breach]:
    """Sessions that lived through it know a new epoch."""
    latest = undoing.back_at + NOTICED_WITHIN_S + SEEN_LATE_S
    for session in books.sessions.values():
        was_there = session.began_at < undoing.began and session.ended_at > latest
        if was_there and not any(undoing.began < at <= latest for at, _ in session.epochs[1:]):
            yield Breach(NOTICED, f"{session.name} of {session.address} was not told of a new epoch")


def _false_alarms(books: Books, undone: Undone, said: list[Notice]) -> Iterator[Breach]:
    for one in said:
        if not any(_explains(undoing, one.at) and one.shard in undoing.shards for undoing in undone.went_back()):
            yield Breach("no false alarm", f"{one.who or 'the event log'} says that shard {one.shard} has gone back")
    epochs = sorted(found for session in books.sessions.values() for found in session.epochs)
    known: set[str] = set()
    for at, epoch in epochs:
        if known and epoch not in known and not any(_explains(undoing, at) for undoing in undone.went_back()):
            yield Breach("no false alarm", f"a session was told the new epoch {epoch}, and the store has all its data")
        known.add(epoch)


def _explains(undoing: Undoing, at: float) -> bool:
    return undoing.began <= at <= undoing.back_at + ALARM_WITHIN_S


def used_twice(books: Books, lives: Lives, undone: Undone) -> Iterator[Breach]:
    """A sequence number that was promised belongs to one message for ever, also when the store forgot it."""
    ids: dict[tuple[str, str, str, int], set[str]] = defaultdict(set)
    for key, message in books.messages.items():
        accepted = [event for event in lives.get(key, []) if event.kind == "accepted"]
        numbers = {event.seq for event in accepted} | {
            one.seq
            for one in message.deliveries
            if not undone.may_concern(message) or (message.accepted_at or one.at + 9) < one.at + SAME_TIME_S
        }
        for number in numbers:
            ids[(*message.thread, number)].add(key.id)
    for (to, sender, thread, number), some in ids.items():
        if len(some) > 1:
            yield Breach("numbers once", f"{sender} to {to}, thread {thread!r}: {number} is of {sorted(some)}")


def ghosts(clients: list[Client], books: Books, ended_before: float) -> Iterator[Breach]:
    """Sessions that ended, as their clients know, and that the store takes for present, or for the holders of mail."""
    gone = {session.name: session for session in books.sessions.values() if session.ended_at < ended_before}
    for client in clients:
        for name in client.scan_iter(match="relay:{s*}:presence", count=1_000):
            for value in client.hvals(name):
                for present in (line.partition("\t")[0] for line in value.split("\n")):
                    if present in gone:
                        yield Breach("no ghosts", f"{present} of {gone[present].address} has left, and is in {name}")
        for box in client.scan_iter(match="relay:{s*}:box:*", count=1_000, _type="stream"):
            yield from (
                Breach("no ghosts", f"{one['name']} has left, and holds {one['pending']} entries of {box}")
                for one in _consumers(client, box)
                if one["name"] in gone and one["pending"]
            )


def _consumers(client: Client, box: str) -> list[Frame]:
    try:
        found: list[Frame] = client.xinfo_consumers(box, "agent")
    except redis.ResponseError:  # it has no group
        return []
    return found


def no_anomaly(clients: list[Client]) -> Iterator[Breach]:
    """The observer tells of it too."""
    if not any(_raised(client) for client in clients):
        yield Breach(NOTICED, f"there was no anomaly {ANOMALY}")


def _raised(client: Client) -> bool:
    try:
        return bool(client.hexists("relay:anomaly_totals", ANOMALY))
    except redis.ResponseError:  # another master of the Cluster has it
        return False
