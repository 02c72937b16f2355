"""The story of a run: what is broken, when and for how long. One seed makes one story."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

QUIET_AT_FIRST_S = 2.0
FAULTS_PER_S = 0.9  # besides those of the store
LONGEST_STOP_S = 40.0
SHORTEST_RUN_WITH_IT_S = 120.0  # shorter runs have shorter stops
STORE_REST_S = 6.0  # servers that lost one of them need it back before the next goes
LAST_WAKES_S = 2.0  # at the very end wakes get lost: only the re-check can still find that mail


@dataclass(frozen=True, slots=True)
class Kind:
    """A way to break something."""

    name: str
    weight: float  # how often it is chosen, compared with others
    target: str  # instance, workers, client, server, sentinel, link, agent, or store for the whole of it
    shortest_s: float
    longest_s: float  # 0 of what takes no time
    hurts_store: bool = False


KINDS = (
    Kind("kill instance", 3, "instance", 0.5, 3),
    Kind("stop instance", 2, "instance", 1, LONGEST_STOP_S),
    Kind("drain instance", 1, "instance", 0.5, 2),
    Kind("kill workers", 1, "workers", 0.5, 4),
    Kind("kill client", 2, "client", 0.2, 3),
    Kind("stop workers", 1, "workers", 1, LONGEST_STOP_S),
    Kind("cut store links", 2, "server", 0, 0),
    Kind("slow store links", 1, "server", 1, 4),
    Kind("half-dead store links", 1.5, "server", 1, 6),
    Kind("cut client", 3, "agent", 0, 0),
    Kind("half-dead client", 2, "agent", 1, 12),
    Kind("slow reader", 2, "agent", 2, 14),
    Kind("slow client links", 1, "instance", 1, 4),
    Kind("offline agent", 3, "agent", 1, 8),
    Kind("second session", 3, "agent", 0, 0),
    Kind("cut wakes", 1.5, "store", 0, 0),
    Kind("lost wakes", 2, "store", 0.5, 3),
    Kind("flush scripts", 1, "store", 0, 0),
    Kind("destroy groups", 1, "store", 0, 0),
    Kind("full server", 1, "store", 0.5, 3),
    Kind("clock step", 1, "instance", 2, 10),
)
STORE_KINDS = {
    "single": (
        Kind("kill server", 2, "server", 0.2, 4, hurts_store=True),
        Kind("stop server", 1.5, "server", 0.5, LONGEST_STOP_S / 4, hurts_store=True),
    ),
    "sentinel": (
        Kind("kill master", 2, "store", 3, 6, hurts_store=True),
        Kind("stop master", 1.5, "store", 2, LONGEST_STOP_S / 4, hurts_store=True),
        Kind("planned failover", 2, "store", 3, 4, hurts_store=True),
        Kind("kill replica", 1, "store", 1, 4, hurts_store=True),
        Kind("kill sentinel", 1, "sentinel", 1, 6),
        Kind("stop sentinel", 1, "sentinel", 1, 8),
    ),
    "cluster": (
        Kind("kill master", 2, "server", 4, 7, hurts_store=True),
        Kind("stop master", 1.5, "server", 2, LONGEST_STOP_S / 4, hurts_store=True),
        Kind("planned failover", 2, "server", 3, 4, hurts_store=True),
        Kind("kill replica", 1, "server", 1, 4, hurts_store=True),
        Kind("move a shard", 4, "server", 1, 2, hurts_store=True),
    ),
}
BACK_KINDS = {  # how the store goes back in time: by what happened since the fault began
    "single": (
        Kind("cut log", 2, "server", 1, 5, hurts_store=True),
        Kind("restore backup", 1, "server", 3, 8, hurts_store=True),
    ),
    "sentinel": (Kind("stale failover", 1, "store", 1, 5, hurts_store=True),),
    "cluster": (Kind("stale failover", 1, "server", 1, 5, hurts_store=True),),
}
GOES_BACK = frozenset(kind.name for kinds in BACK_KINDS.values() for kind in kinds)
LEAVES_AFTER_S = 0.3
BACK_REST_S = 16.0  # by then everybody has noticed, and what was left behind is looked for
# What happens beside it: nothing that keeps an instance from its store, or a session from its instance.
BESIDE_IT = (
    "kill workers",
    "cut client",
    "offline agent",
    "second session",
    "cut wakes",
    "lost wakes",
    "flush scripts",
)
TOPOLOGIES = tuple(STORE_KINDS)


def lasts_s(topology: str, kind: str) -> float:
    """For how long a fault of this kind is on, at most."""
    kinds = (*KINDS, *STORE_KINDS[topology], *BACK_KINDS[topology])
    return next((one.longest_s for one in kinds if one.name == kind), 0.0)


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is broken: what, which one of its kind, from when on and for how long."""

    at_s: float
    kind: str
    number: int  # which one: a large number, of which the number of targets is the modulus
    for_s: float

    @property
    def end_s(self) -> float:
        return self.at_s + self.for_s


def chance(seed: int, *words: object) -> Random:
    """A source of decisions that depends on the seed and on what is decided, and on nothing else."""
    return Random("/".join(map(str, (seed, *words))))


def write_story(topology: str, seed: int, seconds: float, goes_back: bool = False) -> list[Fault]:
    """The faults of a run, in the order of their beginnings."""
    if goes_back:
        beside = tuple(kind for kind in KINDS if kind.name in BESIDE_IT)
        until_s = seconds - BACK_REST_S
        store = list(_store_faults(BACK_KINDS[topology], chance(seed, topology, "back"), until_s, BACK_REST_S))
        store += [_leaves(fault) for fault in store]
    else:
        beside, rest_s = KINDS, STORE_REST_S if topology != "single" else 1.0
        store = list(_store_faults(STORE_KINDS[topology], chance(seed, topology, "store"), seconds, rest_s))
    return sorted((*store, *_other_faults(beside, seed, seconds), _last(seconds)), key=lambda fault: fault.at_s)


def _store_faults(kinds: tuple[Kind, ...], random: Random, seconds: float, rest_s: float) -> Iterator[Fault]:
    """One after the other: two of them at once may lose what only one server had."""
    now_s = QUIET_AT_FIRST_S
    while True:
        now_s += random.uniform(1, 6)
        fault = _choose(random, kinds, now_s, seconds)
        if fault.end_s > seconds - LAST_WAKES_S:
            return
        yield fault
        now_s = fault.end_s + rest_s


def _leaves(beside: Fault) -> Fault:
    """Somebody leaves in the time that will be lost, and is away when it is: the store must not believe in them."""
    return Fault(beside.at_s + LEAVES_AFTER_S, "offline agent", beside.number, beside.for_s + BACK_REST_S - 1)


def _other_faults(kinds: tuple[Kind, ...], seed: int, seconds: float) -> Iterator[Fault]:
    """Any number of them may overlap."""
    random, now_s = chance(seed, "faults"), QUIET_AT_FIRST_S
    while True:
        now_s += random.expovariate(FAULTS_PER_S)
        fault = _choose(random, kinds, now_s, seconds)
        if now_s > seconds - LAST_WAKES_S:
            return
        if fault.end_s <= seconds:
            yield fault


def _choose(random: Random, kinds: tuple[Kind, ...], at_s: float, seconds: float) -> Fault:
    (kind,) = random.choices(kinds, [kind.weight for kind in kinds])
    longest_s = max(kind.shortest_s, kind.longest_s * min(1.0, seconds / SHORTEST_RUN_WITH_IT_S))
    for_s = random.triangular(kind.shortest_s, longest_s, kind.shortest_s) if longest_s else 0.0
    return Fault(round(at_s, 2), kind.name, random.randrange(1_000), round(for_s, 2))


def _last(seconds: float) -> Fault:
    return Fault(seconds - LAST_WAKES_S, "lost wakes", 0, LAST_WAKES_S)
