"""The report: how a run goes, what it saw, and the evidence of every broken promise."""

import time
from collections import Counter, defaultdict
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from bench.torture.books import Books, Breach, Key
from bench.torture.eventlog import Lives
from bench.torture.forks import Undone
from bench.torture.leaks import pending
from bench.torture.story import Fault, lasts_s
from bench.torture.topology import Client

AFTERMATH_S = 5.0  # what stalls so long after a fault was mended is still counted to it
NO_FAULT = "none"
QUIET_MOST_S = 10.0  # the longest wait that no fault explains: the heartbeat is 3 s, and the machine may be busy
# By topology, what a wait may take beside its fault: others overlap with it, clients take up to 12 s to give up a
# silent connection, and behind Sentinels nothing is promised for some eleven seconds after a failover.
COMES_RIGHT_S = {"single": 30.0, "sentinel": 45.0, "cluster": 30.0}
MOST_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Stall:
    """The longest waits while a kind of fault was on."""

    times: int
    accept_s: float  # from the first sending to the answer that it is stored
    deliver_s: float  # from that answer to an exclusive agent that was not away on purpose


def stalls(books: Books, done: "list[tuple[Fault, float, float]]") -> dict[str, Stall]:
    """By kind of fault. A wait counts for the fault that covers most of it, the latest of several."""
    times = Counter(fault.kind for fault, _, _ in done)
    accept_s: dict[str, float] = defaultdict(float)
    deliver_s: dict[str, float] = defaultdict(float)
    for waits, longest in ((_accept_waits(books), accept_s), (_deliver_waits(books), deliver_s)):
        for began, ended in waits:
            kind = _most_of(began, ended, done)
            longest[kind] = max(longest[kind], ended - began)
    kinds = sorted({*times, *accept_s, *deliver_s})
    return {kind: Stall(times[kind], accept_s[kind], deliver_s[kind]) for kind in kinds}


def _most_of(began: float, ended: float, done: "list[tuple[Fault, float, float]]") -> str:
    """The kind of the fault that was on, or just mended, for the largest part of a wait; of several, the latest."""
    parts = [(min(ended, end + AFTERMATH_S) - max(began, start), start, fault.kind) for fault, start, end in done]
    part_s, _, kind = max(parts, default=(0.0, 0.0, NO_FAULT))
    return kind if part_s > 0 else NO_FAULT


def stuck(topology: str, by_kind: dict[str, Stall], patience: float) -> list[Breach]:
    """Nothing waits for long while nothing is broken, nor for much longer than something is."""
    return [
        Breach("nothing stuck", f"a wait of {longest_s:.1f} s, fault: {kind}, and {most_s:.0f} s are allowed")
        for kind, stall in by_kind.items()
        if (longest_s := max(stall.accept_s, stall.deliver_s)) > (most_s := _most_s(topology, kind) * patience)
    ]


def _most_s(topology: str, kind: str) -> float:
    return QUIET_MOST_S if kind == NO_FAULT else lasts_s(topology, kind) + COMES_RIGHT_S[topology]


Wait = tuple[float, float]  # from when to when


def _accept_waits(books: Books) -> list[Wait]:
    messages = books.messages.values()
    return [(message.sent_at, message.accepted_at) for message in messages if message.accepted_at is not None]


def _deliver_waits(books: Books) -> list[Wait]:
    exclusive = {session.address for session in books.sessions.values() if session.mode == "exclusive"}
    waits = []
    for message in books.messages.values():
        if message.key.to not in exclusive or "delay_s" in message.fields or message.accepted_at is None:
            continue
        began, ended = message.accepted_at, message.deliveries[0].at if message.deliveries else message.accepted_at
        if not any(start < ended and began < end for start, end in books.absences[message.key.to]):
            waits.append((began, ended))
    return waits


class Progress:
    """One line a second, over itself on a terminal."""

    def __init__(self, console: Console, seconds: float) -> None:
        self._console = console
        self._seconds = seconds
        self._began = time.monotonic()
        self._status = console.status("starting")
        self._status.start()

    def show(self, books: Books, on: list[str], phase: str = "") -> None:
        counts = books.counts
        now = f"{time.monotonic() - self._began:4.0f} s of {self._seconds:.0f}"
        told = (
            f"accepted {counts['accepted']:,}, delivered {counts['delivered']:,}, broken promises {len(books.breaches)}"
        )
        self._status.update(f"{now}  {told}  [yellow]{phase or ', '.join(on)}[/yellow]")

    def say(self, text: str) -> None:
        self._console.print(f"[dim]{time.monotonic() - self._began:6.1f}[/dim] {text}", highlight=False)

    def close(self) -> None:
        self._status.stop()


def print_summary(console: Console, title: str, books: Books, by_kind: dict[str, Stall], undone: Undone) -> None:
    counts = books.counts
    table = Table(title=title, title_justify="left")
    for column in ("fault", "times", "longest wait for accepted, s", "longest wait for delivery, s"):
        table.add_column(column, justify="left" if column == "fault" else "right")
    for kind, stall in by_kind.items():
        table.add_row(kind, str(stall.times), f"{stall.accept_s:.1f}", f"{stall.deliver_s:.1f}")
    console.print(table)
    names = (
        "accepted",
        "duplicate",
        "delivered",
        "redelivered",
        "ack",
        "nack",
        "release",
        "reply",
        "receipts",
        "probes",
    )
    console.print("messages: " + ", ".join(f"{name} {counts[name]:,}" for name in names), highlight=False)
    rest = {name: count for name, count in sorted(counts.items()) if " " in name}
    console.print("answers: " + ", ".join(f"{name} {count:,}" for name, count in rest.items()), highlight=False)
    concerned = sum(undone.may_concern(message) for message in books.messages.values())
    console.print(
        f"failovers: {len(undone.undoings)}, in the time and a shard of {concerned:,} messages", highlight=False
    )


def print_breaches(console: Console, breaches: list[Breach], books: Books, lives: Lives, clients: list[Client]) -> None:
    for breach in breaches[:MOST_SHOWN]:
        console.print(f"[bold red]BROKEN[/bold red] {breach.promise}: {breach.what}", highlight=False)
        if breach.key is not None:
            for line in evidence(breach.key, books, lives, clients):
                console.print(f"    {line}", highlight=False, markup=False)
    if len(breaches) > MOST_SHOWN:
        console.print(f"… and {len(breaches) - MOST_SHOWN} more: {Counter(one.promise for one in breaches)}")


def evidence(key: Key, books: Books, lives: Lives, clients: list[Client]) -> list[str]:
    """What everybody said of a message, and what the store says of it now."""
    lines = [f"message {key.id} from {key.sender} to {key.to}"]
    message = books.messages.get(key)
    if message is not None:
        fields = {name: value for name, value in message.fields.items() if name != "payload"}
        state = "accepted" if message.accepted_at else message.refused or "in doubt"
        lines.append(f"sent as {fields} over {'HTTP' if message.is_http else 'WebSocket'}: {state}, {message.cancel}")
        steps = [
            (one.at, f"delivered to {one.holder} as {one.entry}, attempt {one.attempt}") for one in message.deliveries
        ]
        steps += [
            (one.asked_at, f"{one.how} by {one.holder}: {one.answer or 'no answer'}") for one in message.settlements
        ]
        lines += [f"{at - message.sent_at:8.3f} s {what}" for at, what in sorted(steps)]
        lines += [f"receipt in {receipt.session}: {receipt.told}" for receipt in message.receipts]
    lines += [
        f"log: {event.kind} {event.entry} at {event.at_ms} attempt {event.attempt} {event.who} {event.reason}"
        for event in lives.get(key, [])
    ]
    for client in clients:
        lines += _as_redis_cli(client, key)
    return lines


def _as_redis_cli(client: Client, key: Key) -> list[str]:
    port, lines = client.connection_pool.connection_kwargs["port"], []
    for box in sorted(client.scan_iter(match=f"relay:*:box:{key.to}*", count=1_000)):
        if client.xlen(box):
            lines += [f"redis-cli -p {port} XPENDING '{box}' agent - + 5", f"  {pending(client, box)}"]
    return lines
