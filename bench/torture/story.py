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
    target: str  # instance, workers, server, sentinel, link, agent, or store for the whole of it
    shortest_s: float
    longest_s: float  # 0 of what takes no time
    hurts_store: bool = False


KINDS = (
    Kind("kill instance", 3, "instance", 0.5, 3),
    Kind("stop instance", 2, "instance", 1, LONGEST_STOP_S),
    Kind("drain instance", 1, "instance", 0.5, 2),
    Kind("kill workers", 1, "workers", 0.5, 4),
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
TOPOLOGIES = tuple(STORE_KINDS)


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


def write_story(topology: str, seed: int, seconds: float) -> list[Fault]:
    """The faults of a run, in the order of their beginnings."""
    return sorted((*_store_faults(topology, seed, seconds), *_other_faults(seed, seconds), _last(seconds)),
                  key=lambda fault: fault.at_s)  # fmt: skip


def _store_faults(topology: str, seed: int, seconds: float) -> Iterator[Fault]:
    """One after the other: two of them at once may lose what only one server had."""
    random, now_s = chance(seed, topology, "store"), QUIET_AT_FIRST_S
    while True:
        now_s += random.uniform(1, 6)
        fault = _choose(random, STORE_KINDS[topology], now_s, seconds)
        if fault.end_s > seconds - LAST_WAKES_S:
            return
        yield fault
        now_s = fault.end_s + (STORE_REST_S if topology != "single" else 1.0)


def _other_faults(seed: int, seconds: float) -> Iterator[Fault]:
    """Any number of them may overlap."""
    random, now_s = chance(seed, "faults"), QUIET_AT_FIRST_S
    while True:
        now_s += random.expovariate(FAULTS_PER_S)
        fault = _choose(random, KINDS, now_s, seconds)
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
