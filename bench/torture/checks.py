"""The checks: every promise, compared with the books of the clients and the event log of the store."""

import time
from collections import defaultdict
from collections.abc import Iterator

from bench.torture.books import LEAVES, Books, Breach, Delivery, Message, Settlement
from bench.torture.eventlog import FINAL, HOLD_ENDS, STEPS, Event, Lives, place
from bench.torture.forks import Undone
from bench.torture.traffic import CLIENTS

CLOCK_MS = 60.0  # what a delivery may seem to be older than the step that caused it
STATES = {"acked": "delivered", "dead": "dead", "expired": "expired"}
KINDS = {"ack": "acked", "nack": "nacked", "release": "released", "touch": "touched", "reply": "replied"}


def check(books: Books, lives: Lives, undone: Undone, clock_off_s: float) -> list[Breach]:
    """Every broken promise that the books and the log show.

    A failover undoes what was not replicated and never promised. So a message may have been delivered under an entry
    that is gone, before its sender was told that it is accepted, and a receipt may have come before its end was undone:
    a message of that time and of a shard of that master, and no other.
    If clocks were set wrong by `clock_off_s`, times in the log are only as good as that.
    """
    breaches = list(books.breaches)
    for key, message in books.messages.items():
        life, may_be_undone = lives.get(key, []), undone.may_concern(message)
        found = [
            *_kept(message, life),
            *_once(message, life, may_be_undone),
            *_one_end(message, life),
            *_settled(message, life),
        ]
        found += [*_fenced(message, life, CLOCK_MS + clock_off_s * 1_000), *_receipt(message, life, may_be_undone)]
        found += _delays(message, clock_off_s)
        breaches += [Breach(promise, what, key) for promise, what in found]
        if not may_be_undone:
            breaches += [Breach("one receipt", what, key) for what in _repeated(message)]
    breaches += _from_nowhere(books, lives)
    breaches += _numbered(books, lives, undone)
    breaches += _in_order(books, lives, undone)
    breaches += _answered(books, undone)
    return breaches


ALWAYS = frozenset({"tenants apart", "payloads unchanged", "no ghosts"})  # whatever a store forgets


def is_excused(breach: Breach, books: Books, lives: Lives, undone: Undone) -> bool:
    """Whether it is about a message of a time that the store has forgotten, or its end is."""
    message = books.messages.get(breach.key) if breach.key is not None else None
    if message is None or breach.promise in ALWAYS:
        return False
    ahead_s = time.time() - time.monotonic()
    ends = [event.at_ms / 1_000 - ahead_s for event in lives.get(message.key, [])]
    return undone.may_be_lost(message, max([one.at for one in books.replies[message.key]] + ends, default=0.0))


Found = Iterator[tuple[str, str]]


def _kept(message: Message, life: list[Event]) -> Found:
    """Accepted means stored; refused means not."""
    stored = any(event.kind == "accepted" for event in life)
    if message.accepted_at is not None and not stored:
        yield "accepted means stored", "was accepted, and the log knows nothing of it"
    if message.refused and stored:
        yield "clear answers", f"was refused with {message.refused} each time, and is stored"
    if message.deliveries and not stored:
        yield "stored once", "was delivered, and the log does not know that it was accepted"


def _once(message: Message, life: list[Event], may_be_undone: bool) -> Found:
    """One copy in the mailbox: one acceptance, one entry, one number."""
    accepted = [event for event in life if event.kind == "accepted"]
    if len(accepted) > 1:
        yield "stored once", f"was stored {len(accepted)} times: {', '.join(event.entry for event in accepted)}"
    copies = {(one.entry, one.seq) for one in message.deliveries} | {(one.entry, one.seq) for one in accepted}
    if len(copies) > 1 and not may_be_undone:
        yield "stored once", f"has several entries or numbers: {sorted(copies)}"
    undone = {one.entry for one in message.deliveries} - {one.entry for one in accepted}
    if any(one.answer == "settled" and one.entry in undone for one in message.settlements):
        yield "settled means settled", f"was settled as {sorted(undone)}, which the log does not have"


def _one_end(message: Message, life: list[Event]) -> Found:
    """What was stored ends once, for a reason, and nothing happens to it afterwards."""
    if not any(event.kind == "accepted" for event in life):
        return
    ends = [n for n, event in enumerate(life) if event.kind in FINAL]
    if not ends:
        yield "nothing lost", "was accepted and never ended, though everything was drained"
        return
    if len(ends) > 1:
        yield "one end", f"ended {len(ends)} times: {', '.join(life[n].kind for n in ends)}"
    later = [event.kind for event in life[ends[0] + 1 :] if event.kind in STEPS]
    if later:
        yield "one end", f"was {life[ends[0]].kind}, and then {', '.join(later)}"
    yield from _for_a_reason(message, life[ends[0]])


def _for_a_reason(message: Message, end: Event) -> Found:
    settlements = [one for one in message.settlements if one.entry == end.entry]
    match end.kind:
        case "acked" if not any(one.how in LEAVES and one.holder == end.who for one in settlements):
            yield "delivered means acked", f"was acked by {end.who}, which never asked for it"
        case "expired" if "ttl_s" not in message.fields:
            yield "nothing lost", "expired long before its time"
        case "cancelled" if not message.cancel:
            yield "nothing lost", "was cancelled, and nobody had asked"
        case "dead" if not _may_die(message, end):
            yield "nothing lost", f"died at attempt {end.attempt}, and had not failed often enough"
    if message.cancel == "cancelled" and end.kind != "cancelled":
        yield "one end", f"its sender was told that it is cancelled, and it was {end.kind}"


def _may_die(message: Message, end: Event) -> bool:
    most = message.fields.get("max_attempts", 0)
    buried = any(one.how == "nack" and one.fields.get("retry") is False for one in message.settlements)
    return buried or 0 < most <= end.attempt


def _settled(message: Message, life: list[Event]) -> Found:
    """What a holder was told to be settled is in the log, under its name."""
    for one in message.settlements:
        if one.answer == "settled" and not any(_is_step(one, event) for event in life):
            yield "settled means settled", f"{one.holder} was told that its {one.how} is settled; the log has none"


def _is_step(settlement: Settlement, event: Event) -> bool:
    return event.kind == KINDS[settlement.how] and event.who == settlement.holder


def _fenced(message: Message, life: list[Event], clock_ms: float) -> Found:
    """Nobody settles what it does not hold any more: it must have got it after the last hold before had ended."""
    for n, event in enumerate(life):
        if event.kind not in KINDS.values():
            continue
        got = [one for one in message.deliveries if one.holder == event.who]
        if event.kind == "released":
            continue  # also what ends with its session, and may never have reached its client
        before = _last_end(life[:n], event.who)
        if not got:
            yield "only its holder settles", f"{event.kind} by {event.who}, to which it was never delivered"
        elif before is not None and (
            all(one.attempt < event.attempt for one in got) or got[-1].at_ms < before.at_ms - clock_ms
        ):
            yield "only its holder settles", f"{event.kind} by {event.who} after {before.kind} of {before.who}"
    told = [one for one in message.settlements if one.how in LEAVES and one.answer == "settled"]
    if len({one.holder for one in told}) > 1:
        yield "only its holder settles", f"{' and '.join(one.holder for one in told)} were both told that it is settled"


def _last_end(life: list[Event], holder: str) -> Event | None:
    """The end of the last hold, unless this holder has taken it since: that may not have reached its client yet."""
    for event in reversed(life):
        if event.kind in HOLD_ENDS:
            return event
        if event.kind == "taken" and event.who == holder:
            return None
    return None


def _receipt(message: Message, life: list[Event], may_be_undone: bool) -> Found:
    """The sender learns the end: always the same, and what really happened."""
    end = next((event for event in life if event.kind in FINAL), None)
    if end is None:
        return
    state = STATES.get(end.kind, "")
    is_due = bool(message.receipt) and (
        state in ("delivered", "dead") or (state == "expired" and message.receipt == "all")
    )
    if is_due and not message.receipts:
        yield "the sender learns the end", f"was {end.kind}, and its sender got no receipt"
    if message.receipts and not is_due and not (may_be_undone and _not_lasting(message)):
        yield "the sender learns the end", f"got a receipt of what was {end.kind}: {message.receipts[0].told}"
    wrong = [
        told
        for _, told, _ in message.receipts
        if told["state"] != state or (told["at_ms"] != end.at_ms and not may_be_undone)
    ]
    is_told = len(wrong) < len(message.receipts)
    if is_due and wrong and not (may_be_undone and is_told):
        yield "the sender learns the end", f"was {end.kind} at {end.at_ms}, and the receipt says {wrong[0]}"


def _not_lasting(message: Message) -> list[Settlement]:
    """Those that ended it, without the promise that this lasts."""
    return [one for one in message.settlements if one.how in LEAVES and one.answer != "settled"]


def _repeated(message: Message) -> Iterator[str]:
    """What was not confirmed comes again in the next session, and not in the same one."""
    sessions = [receipt.session for receipt in message.receipts]
    if len(set(sessions)) < len(sessions):
        yield f"its sender got {len(sessions)} receipts in {len(set(sessions))} sessions"


def _delays(message: Message, clock_off_s: float) -> Found:
    """Nothing comes before its time, which is counted from when it was sent."""
    delay_s = message.fields.get("delay_s", 0)
    if delay_s and message.deliveries:
        early_s = message.sent_at + delay_s - message.deliveries[0].at
        if early_s > clock_off_s:
            yield "delays", f"was delayed by {delay_s} s and came {early_s:.3f} s too early"


# -- over many messages


def _from_nowhere(books: Books, lives: Lives) -> Iterator[Breach]:
    for key, life in lives.items():
        is_known = key in books.messages or key.id.startswith("reply:") or key.sender in CLIENTS
        if not is_known and any(event.kind == "accepted" for event in life):
            yield Breach("tenants apart", "is in the store, and nobody sent it", key)


def _numbered(books: Books, lives: Lives, undone: Undone) -> Iterator[Breach]:
    """Sequence numbers count from 1 without gaps, in the order of acceptance, unless some are forgotten."""
    forgetful = frozenset[int]().union(*(one.shards for one in undone.went_back()))
    threads: dict[tuple[str, str, str], list[Event]] = defaultdict(list)
    for key, life in lives.items():
        for event in life:
            if event.kind == "accepted":
                threads[key.to, key.sender, event.thread].append(event)
    for (to, sender, thread), events in threads.items():
        numbers = sorted(event.seq for event in events)
        if numbers != list(range(1, len(events) + 1)) and undone.shard(to) not in forgetful:
            gaps = sorted(set(range(1, numbers[-1] + 1)) - set(numbers)) or numbers
            yield Breach("numbers without gaps", f"{sender} to {to}, thread {thread!r}: {gaps[:5]} of {len(numbers)}")
    yield from _sent_in_order(books, lives, undone)


def _sent_in_order(books: Books, lives: Lives, undone: Undone) -> Iterator[Breach]:
    """What its sender knew to be accepted before it sent the next one has the smaller number.

    What a store has forgotten since comes again under a later one."""
    latest: dict[tuple[str, str, str], tuple[int, float, Message]] = {}
    for message in books.messages.values():  # in the order in which each sender sent them
        event = next((one for one in lives.get(message.key, []) if one.kind == "accepted"), None)
        if event is None:
            continue
        before = latest.get(message.thread)
        if before is not None and before[1] < message.sent_at and before[0] > event.seq:
            yield Breach(
                "in order", f"has number {event.seq}, and {before[2].key.id} before it {before[0]}", message.key
            )
        lasts = message.accepted_at is not None and not undone.may_be_lost(message)
        if message.accepted_at is not None and lasts and (before is None or before[0] < event.seq):
            latest[message.thread] = (event.seq, message.accepted_at, message)


def _in_order(books: Books, lives: Lives, undone: Undone) -> Iterator[Breach]:
    """What nobody gave back comes to an exclusive session in the order of its lane, the backlog by priority."""
    by_session: dict[str, list[Delivery]] = defaultdict(list)
    for message in books.messages.values():
        life, may_be_undone = lives.get(message.key, []), undone.may_concern(message)
        is_steady = "delay_s" not in message.fields and not any(
            event.kind in HOLD_ENDS and not _ended_with_session(event) for event in life
        )
        for n, delivery in enumerate(message.deliveries):
            session = books.sessions.get(delivery.holder)
            is_first = all(one.holder != delivery.holder for one in message.deliveries[:n])
            if may_be_undone and _may_be_back(message, delivery):
                continue
            if is_steady and is_first and session is not None and session.mode == "exclusive":
                by_session[delivery.holder].append(delivery)
    for session_name, deliveries in by_session.items():
        yield from _lanes_in_order(session_name, sorted(deliveries, key=lambda one: one.number))


def _may_be_back(message: Message, delivery: Delivery) -> bool:
    """Whether another holder has ended it before, which did not last: then others may have come meanwhile."""
    return any(one.holder != delivery.holder and one.asked_at < delivery.at for one in _not_lasting(message))


def _ended_with_session(event: Event) -> bool:
    """Then it goes back to its place; what a client gives back by itself has no reason."""
    return event.kind == "released" and event.reason != ""


def _lanes_in_order(session: str, deliveries: list[Delivery]) -> Iterator[Breach]:
    last: dict[int, Delivery] = {}
    lowest = 9
    for one in deliveries:
        priority = one.fields["priority"]
        before = last.get(priority)
        if before is not None and place(before.entry) > place(one.entry):
            later = f"{one.at - before.at:.3f} s after {before.key.id} of {before.key.sender}, {before.entry}"
            yield Breach("in order", f"came to {session} as {one.entry}, {later}", one.key)
        last[priority] = one
        if not one.before_drained:
            continue
        if not one.was_stored:
            yield Breach("backlog first", f"came to {session} before drained, and was accepted after it began", one.key)
        if priority > lowest:
            yield Breach("in order", f"came to {session} behind its backlog of priority {lowest}", one.key)
        lowest = min(lowest, priority)


def _answered(books: Books, undone: Undone) -> Iterator[Breach]:
    """A request that was answered by a last reply is answered in the mailbox of its requester, once."""
    for key, message in books.messages.items():
        if not message.fields.get("request") or message.is_http:
            continue
        told = any(one.how == "reply" and one.answer == "settled" for one in message.settlements)
        may_be_undone = undone.may_concern(message, max((one.at for one in books.replies[key]), default=0.0))
        copies = {one.fields["id"] if may_be_undone else one.entry for one in books.replies[key]}
        if told and not copies and "ttl_s" not in message.fields:
            yield Breach("replies arrive", "was answered, and the requester did not get the reply", key)
        if len(copies) > 1:
            yield Breach("stored once", f"its requester got {len(copies)} replies", key)
        for one in books.replies[key]:
            if one.fields["payload"] != {"re": list(key)}:
                yield Breach("payloads unchanged", f"its reply came with {one.fields['payload']}", key)
