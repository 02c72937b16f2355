"""A company of agents that never was: who sends what, and what becomes of it. The same seed, the same company."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
ROLES = ("planner", "billing", "search", "coder", "reviewer", "mailer", "crawler", "notary", "archivist", "translator")
TENANTS = ("acme", "globex", "initech")
TYPES = ("job", "note", "event", "question")
RHYTHM = np.array([2, 1, 1, 1, 1, 2, 4, 8, 14, 18, 19, 18, 15, 17, 19, 18, 16, 12, 8, 6, 5, 4, 3, 2], dtype=float)
RETRY_MS = 10_000
TTL_MS = 6 * HOUR_MS
SEED = 1

Numbers = npt.NDArray[np.int64]
Truths = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Messages:
    """Column by column, in the order in which they were accepted; agents, types and threads by number."""

    accepted_at: Numbers
    to: Numbers
    sender: Numbers
    type: Numbers
    thread: Numbers
    priority: Numbers
    bytes: Numbers
    seq: Numbers
    nth: Numbers  # among the entries of a mailbox in one millisecond


@dataclass(frozen=True, slots=True)
class Some:
    """Events of one kind, one per message named in `of`."""

    kind: str
    of: Numbers
    at_ms: Numbers
    attempt: int = 1
    taken_at: Numbers | None = None
    reason: str = ""


class Company:
    """Who sends what, and what becomes of it."""

    def __init__(self, count: int, days: int, agents: int, until_ms: int) -> None:
        self._random = np.random.default_rng(SEED)
        self.days = days
        self.since_ms, self.until_ms = until_ms - days * DAY_MS, until_ms
        names = [f"{role}{n or ''}" for n in range(-(-agents // len(ROLES))) for role in ROLES]
        self.agents = [(tenant, name) for tenant in TENANTS for name in names[:agents]]
        self._of_a_tenant = agents
        self.messages = self._accept(count)

    def events(self) -> list[Some]:
        """In the order in which events of one millisecond happen."""
        hit = self._hit()
        fates = self._fates(hit)
        dead, retried, released, plain = (
            np.flatnonzero(fates[name]) for name in ("dead", "retried", "released", "plain")
        )
        failing = np.concatenate([dead, retried])
        taken_at, handle_ms = self._times(hit)
        again_at = taken_at + handle_ms + RETRY_MS
        thrice_at = again_at + handle_ms + 2 * RETRY_MS
        return [
            *self._without_a_session(fates, taken_at),
            _tried(np.concatenate([released, failing, plain]), taken_at, 1),
            _ended("nacked", failing, taken_at, handle_ms, 1, "upstream timeout"),
            _ended("released", released, taken_at, handle_ms, 1, "closed"),
            _tried(released, again_at, 1),
            _ended("acked", released, again_at, handle_ms, 1),
            _tried(failing, again_at, 2),
            _ended("acked", retried, again_at, handle_ms, 2),
            _ended("nacked", dead, again_at, handle_ms, 2, "upstream timeout"),
            _tried(dead, thrice_at, 3),
            _ended("nacked", dead, thrice_at, handle_ms, 3, "upstream timeout"),
            _ended("dead", dead, thrice_at, handle_ms, 3, "upstream timeout"),
            _ended("acked", plain, taken_at, handle_ms, 1),
        ]

    def _without_a_session(self, fates: dict[str, Truths], taken_at: Numbers) -> list[Some]:
        accepted_at = self.messages.accepted_at
        cancelled, expired = np.flatnonzero(fates["cancelled"]), np.flatnonzero(fates["expired"])
        return [
            Some("accepted", np.arange(len(accepted_at)), accepted_at, 0),
            Some("cancelled", cancelled, taken_at[cancelled], 0),
            Some("expired", expired, accepted_at[expired] + TTL_MS, 0),
        ]

    def _fates(self, hit: Truths) -> dict[str, Truths]:
        """What becomes of each message; of what was hit, most is tried more than once and some dies."""
        fate = self._random.random(len(hit))
        fates = {"dead": fate < np.where(hit, 0.15, 0.003)}
        fates["retried"] = ~fates["dead"] & (hit | (fate < 0.018))
        fates["released"] = ~hit & (fate >= 0.018) & (fate < 0.022)
        fates["expired"] = ~hit & self._is_part_time() & (fate > 0.9997)
        fates["cancelled"] = ~hit & ~fates["expired"] & (fate > 0.998)
        return fates | {"plain": ~np.logical_or.reduce(list(fates.values()))}

    def _times(self, hit: Truths) -> tuple[Numbers, Numbers]:
        """When each message is taken first, and how long each handling takes."""
        random, messages, count = self._random, self.messages, len(hit)
        wait_ms = np.maximum(1, random.lognormal(2.3, 0.9, count)).astype(np.int64)
        wait_ms += np.where(self._is_part_time(), random.integers(0, 60_000, count), 0)
        repaired = self.until_ms - 2 * DAY_MS + int(15.5 * HOUR_MS) + random.integers(0, HOUR_MS // 2, count)
        taken_at = np.where(hit, repaired, messages.accepted_at + wait_ms)
        handle_ms = np.maximum(1, random.lognormal(4.2 + 0.35 * messages.type, 0.8, count)).astype(np.int64)
        return taken_at, handle_ms

    def _is_part_time(self) -> Truths:
        """Whether the recipient comes only now and then."""
        part_time: Truths = self.messages.to % 10 == 7
        return part_time

    def _hit(self) -> Truths:
        """What was sent to acme/billing in the afternoon of the last day but one, when what it needs was down."""
        began = self.until_ms - 2 * DAY_MS + 13 * HOUR_MS
        at = self.messages.accepted_at
        hit: Truths = (self.messages.to == 1) & (at >= began) & (at < began + 2.5 * HOUR_MS)
        return hit

    def _accept(self, count: int) -> Messages:
        random = self._random
        hours = np.tile(RHYTHM, self.days) * random.normal(1, 0.06, self.days * 24).clip(0.7, 1.3)
        hour = random.choice(len(hours), count, p=hours / hours.sum())
        accepted_at = np.sort(self.since_ms + hour * HOUR_MS + random.integers(0, HOUR_MS, count))
        weights = 1 / np.arange(1, self._of_a_tenant + 1)
        tenant = random.choice(len(TENANTS), count, p=[0.6, 0.3, 0.1]) * self._of_a_tenant
        to = tenant + random.choice(self._of_a_tenant, count, p=weights / weights.sum())
        sender = tenant + random.integers(0, self._of_a_tenant, count)
        thread = np.where(random.random(count) < 0.7, 0, random.integers(1, 20, count))
        agents = len(self.agents)
        return Messages(
            accepted_at=accepted_at,
            to=to,
            sender=sender,
            type=random.choice(len(TYPES), count, p=[0.5, 0.25, 0.15, 0.1]),
            thread=thread,
            priority=np.where(random.random(count) < 0.05, 9, 0),
            bytes=random.lognormal(5.5, 1, count).astype(np.int64).clip(2, 65_536),
            seq=1 + rank_within((to * agents + sender) * 20 + thread),
            nth=rank_within(to * np.int64(2**44) + accepted_at),
        )


def _tried(of: Numbers, taken_at: Numbers, attempt: int) -> Some:
    return Some("taken", of, taken_at[of], attempt, taken_at[of])


def _ended(kind: str, of: Numbers, taken_at: Numbers, handle_ms: Numbers, attempt: int, reason: str = "") -> Some:
    return Some(kind, of, (taken_at + handle_ms)[of], attempt, taken_at[of], reason)


def rank_within(groups: Numbers) -> Numbers:
    """How many of the same group come before each."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    lengths = np.diff(np.r_[starts, len(ordered)])
    ranks = np.empty(len(groups), dtype=np.int64)
    ranks[order] = np.arange(len(groups)) - np.repeat(starts, lengths)
    return ranks
