"""Tallies: sums of the events of some seconds, by tenant, agent, session and shard. No I/O."""

from collections import defaultdict
from dataclasses import dataclass, field

from relay.store.record.events import COLUMNS, ENDS_OF_DELIVERY, parse
from relay.store.watching.snapshots import Percentiles

MOST_NOTABLE = 1_000  # events of a tenant in one round that are kept one by one
FAILED = frozenset(("nacked", "overdue", "released"))
NOTABLE = FAILED | {"taken", "dead"}  # what happens rarely, and says that something is wrong
_SOME = frozenset(("accepted", "acked"))


@dataclass(frozen=True, slots=True)
class Notable:
    """One event that rules check individually."""

    kind: str
    at_ms: int
    agent: str  # the recipient
    sender: str
    id: str
    entry: str
    attempt: int
    who: str
    reason: str


@dataclass(slots=True)
class AgentTally:
    """One agent: what it received, and what it sent."""

    accepted: float = 0
    acked: float = 0
    sent: float = 0
    refused_full: float = 0
    expired_unread: float = 0
    cancelled: float = 0
    dead: float = 0
    largest_bytes: int = 0  # of a payload that it sent
    largest_id: str = ""


@dataclass(slots=True)
class SessionTally:
    """One holder: what it took, and how quickly it acked."""

    agent: str
    taken: float = 0
    acked: float = 0
    slowest_ms: int = 0  # from taken to acked
    others: float = 0  # settled otherwise than by ack


class Latencies:
    """Milliseconds, counted by their first two digits."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: defaultdict[int, float] = defaultdict(float)

    def add(self, ms: int, weight: float = 1) -> None:
        if ms >= 100:
            ms -= ms % 10 ** (len(str(ms)) - 2)
        self._counts[max(0, ms)] += weight

    def percentiles(self) -> Percentiles | None:
        """None if there is nothing to tell."""
        total = sum(self._counts.values())
        if not total:
            return None
        return Percentiles(*(self._at(total * share) for share in (0.5, 0.95, 0.99)))

    def _at(self, rank: float) -> int:
        seen = 0.0
        for ms in sorted(self._counts):
            seen += self._counts[ms]
            if seen >= rank:
                break
        return ms

    def merge(self, other: "Latencies") -> None:
        for ms, count in other._counts.items():
            self._counts[ms] += count


class TenantTally:
    """What happened in one tenant."""

    __slots__ = ("acked_ms", "agents", "counts", "notable", "sessions", "taken_ms")

    def __init__(self) -> None:
        self.counts: defaultdict[str, float] = defaultdict(float)
        self.taken_ms = Latencies()
        self.acked_ms = Latencies()
        self.agents: defaultdict[str, AgentTally] = defaultdict(AgentTally)
        self.sessions: dict[str, SessionTally] = {}
        self.notable: list[Notable] = []

    def session(self, who: str, agent: str) -> SessionTally:
        found = self.sessions.get(who)
        if found is None:
            found = self.sessions[who] = SessionTally(agent)
        return found


@dataclass(slots=True)
class ShardTally:
    accepted: float = 0
    acked: float = 0


@dataclass(slots=True)
class Tallies:
    """Adds up events from their columns in the logs."""

    tenants: defaultdict[str, TenantTally] = field(default_factory=lambda: defaultdict(TenantTally))
    shards: defaultdict[int, ShardTally] = field(default_factory=lambda: defaultdict(ShardTally))
    clocks: dict[str, int] = field(default_factory=dict)  # instance -> the least that its events are behind the store
    is_estimate: bool = False  # of some logs only a part was read

    def add(self, shard: int, logged_ms: int, columns: list[str], weight: float = 1) -> None:
        """One event, which stands for `weight` of them."""
        if len(columns) != len(COLUMNS):
            return  # what cannot be read must not hide the rest
        tenant = self.tenants[columns[9]]
        kind = columns[0]
        tenant.counts[kind] += weight
        if kind == "acked":
            self.shards[shard].acked += weight
        elif kind == "accepted":
            self.shards[shard].accepted += weight
            self._note_clock(columns, logged_ms)
        _add_to_tenant(tenant, kind, columns, weight)

    def _note_clock(self, columns: list[str], logged_ms: int) -> None:
        instance, behind_ms = columns[6], logged_ms - int(columns[1])
        known = self.clocks.get(instance)
        if known is None or behind_ms < known:
            self.clocks[instance] = behind_ms


def _add_to_tenant(tally: TenantTally, kind: str, columns: list[str], weight: float) -> None:
    if kind in ENDS_OF_DELIVERY and columns[8]:
        _end_of_delivery(tally, kind, columns, weight)
    if kind == "accepted":
        _accepted(tally, columns, weight)
    elif kind not in _SOME:
        _rare(tally, kind, columns, weight)


def _accepted(tally: TenantTally, columns: list[str], weight: float) -> None:
    tally.agents[columns[10]].accepted += weight
    sender = tally.agents[columns[11]]
    sender.sent += weight
    size = int(columns[16])
    if size > sender.largest_bytes:
        sender.largest_bytes, sender.largest_id = size, columns[12]


def _end_of_delivery(tally: TenantTally, kind: str, columns: list[str], weight: float) -> None:
    """A first delivery has no event of its own: whatever ends it tells when it was taken."""
    agent, taken_at, at_ms = columns[10], int(columns[8]), int(columns[1])
    session = tally.session(columns[5], agent)
    accepted_at = int(columns[2].partition("-")[0])
    if columns[4] == "1":
        tally.counts["taken"] += weight
        session.taken += weight
        tally.taken_ms.add(taken_at - accepted_at, weight)
    if kind == "acked":
        tally.agents[agent].acked += weight
        tally.acked_ms.add(at_ms - accepted_at, weight)
        session.acked += weight
        session.slowest_ms = max(session.slowest_ms, at_ms - taken_at)
    else:
        session.others += weight


def _rare(tally: TenantTally, kind: str, columns: list[str], weight: float) -> None:
    agent = tally.agents[columns[10]]
    if kind == "refused" and columns[7] == "queue_full":
        agent.refused_full += weight
    elif kind == "expired" and columns[4] in ("", "0"):
        agent.expired_unread += weight
    elif kind == "cancelled":
        agent.cancelled += weight
    elif kind == "dead":
        agent.dead += weight
    elif kind == "taken":
        tally.session(columns[5], columns[10]).taken += weight
    if kind in NOTABLE and len(tally.notable) < MOST_NOTABLE:
        tally.notable.append(_notable(columns))


def _notable(columns: list[str]) -> Notable:
    fields = parse("", 0, columns).fields
    agent, sender = (f"{fields['tenant']}/{fields[name]}" for name in ("to", "from"))
    return Notable(
        kind=fields["kind"],
        at_ms=fields["at_ms"],
        agent=agent,
        sender=sender,
        id=fields["id"],
        entry=fields["entry"],
        attempt=fields["attempt"] or 0,
        who=fields["who"],
        reason=fields["reason"],
    )
