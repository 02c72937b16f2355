"""Variants of a run: with which settings, and whether the store may go back in time."""

from dataclasses import dataclass, field

HURRIED = {"recheck_s": "1", "heartbeat_s": "3", "sweep_every_s": "1", "drain_s": "3"}


@dataclass(frozen=True, slots=True)
class Variant:
    """A kind of run."""

    name: str
    timings: dict[str, str] = field(default_factory=HURRIED.copy)  # settings
    shards: int = 8
    goes_back: bool = False  # servers lose what they had promised, and nothing else that would excuse an instance
    patience: float = 1.0  # how much longer than in a hurry everything may take to come right


VARIANTS = {
    one.name: one
    for one in (
        Variant("mixed"),
        Variant("regress", goes_back=True),
        Variant("default", timings={}, shards=64, patience=6.0),
    )
}
