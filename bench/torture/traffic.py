"""Traffic: who there is, what they send and what they do with what they get. All of it follows from the seed."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from bench.torture.books import Delivery, Frame, Key
from bench.torture.story import chance

TENANTS = ("acme", "globex")  # the same names and ids in both: nothing may get across
EXCLUSIVE = ("ann", "ben", "cho", "dee")
PLAIN = "ann"  # gets nothing but messages without options, which take the shortest way through the relay
ONE_LANE = "ben"  # gets everything of priority 0
SHARED = ("pool",)
PULLED = ("jobs",)
CLIENTS = ("acme/sender", "acme/receiver")  # processes of their own, with the relay's client
CALLERS = ("web",)  # send over HTTP, and have no mailbox that anybody serves
SEATS = 3  # sessions of a shared agent, pullers of a pulled one
THREADS = 3
WINDOW = 10  # less than the largest batch
PACE_S = 0.25  # how often each sends, on average
MOST_TRIES = 4  # of a message: whoever has had it as often as that acks it


@dataclass(frozen=True, slots=True)
class Member:
    """Somebody who takes part."""

    address: str
    role: str  # exclusive, shared, pulled or caller

    @property
    def tenant(self) -> str:
        return self.address.partition("/")[0]

    @property
    def name(self) -> str:
        return self.address.partition("/")[2]


def members() -> list[Member]:
    roles = {"exclusive": EXCLUSIVE, "shared": SHARED, "pulled": PULLED, "caller": CALLERS}
    return [Member(f"{tenant}/{name}", role) for tenant in TENANTS for role, names in roles.items() for name in names]


@dataclass(frozen=True, slots=True)
class Draft:
    """A message that somebody is going to send, and what else they will do about it."""

    key: Key
    fields: Frame
    again: bool = False  # once accepted, it is sent again over the other door
    cancel_after_s: float | None = None


def batches(seed: int, member: Member) -> Iterator[tuple[float, list[Draft]]]:
    """What a member sends, for ever: how long it pauses before, and a few messages at once."""
    random, number = chance(seed, member.address, "sends"), 0
    recipients = [one.address for one in members() if one.tenant == member.tenant and one.role != "caller"]
    while True:
        size = random.choices((1, 2, 5, 12), (5, 3, 2, 1))[0]
        names = random.choices(recipients, k=size) if random.random() < 0.7 else [random.choice(recipients)] * size
        drafts = [_draft(random, member, to, number + n) for n, to in enumerate(names)]
        number += size
        yield random.expovariate(1 / PACE_S), drafts


def _draft(random: Random, member: Member, to: str, number: int) -> Draft:
    key, recipient = Key(to, member.address, f"{member.name}-{number}"), to.partition("/")[2]
    fields: Frame = {"payload": _payload(random, key)}
    if random.random() < 0.6:
        fields["thread"] = f"t{random.randrange(THREADS)}"
    if random.random() < 0.4:
        fields["type"] = random.choice(("job", "report"))
    if random.random() < 0.25:
        fields["receipt"] = random.choice((True, False, "all"))
    if random.random() < 0.3 and recipient not in (PLAIN, ONE_LANE):
        fields["priority"] = random.randrange(1, 10)
    if recipient != PLAIN:
        fields |= _options(random)
    cancel_after_s = random.uniform(0, 1) if random.random() < (0.5 if "delay_s" in fields else 0.02) else None
    return Draft(key, fields, random.random() < 0.06, cancel_after_s)


def _options(random: Random) -> Frame:
    fields: Frame = {}
    if random.random() < 0.06:
        fields["delay_s"] = round(random.uniform(0.2, 3), 1)
    if random.random() < 0.06:
        fields["ttl_s"] = random.randrange(1, 7)
    if random.random() < 0.1:
        fields["max_attempts"] = random.randrange(1, 4)
    if random.random() < 0.05:
        fields["ack_timeout_s"] = random.randrange(1, 4)
    if random.random() < 0.08:
        fields["request"] = True
    return fields


def _payload(random: Random, key: Key) -> Frame:
    """It names its message, so that one that got into another's place shows."""
    size = random.choices((0, 200, 2_000, 40_000), (50, 40, 8, 2))[0]
    return {"of": list(key), "filling": "x" * random.randrange(size + 1)}


@dataclass(frozen=True, slots=True)
class Deed:
    """What a holder does with what it got: after a while, in which way."""

    how: str  # ack, nack, release, reply, or nothing: it forgets it
    after_s: float = 0.0
    fields: tuple[tuple[str, Any], ...] = ()
    confirm: bool = True
    touches: bool = False


def deed(seed: int, delivery: Delivery, times: int, is_ending: bool) -> Deed:
    """What is done with a delivery; `times` is how often its message has come, with this one."""
    done = "reply" if delivery.fields["request"] else "ack"
    if is_ending or times >= MOST_TRIES or delivery.fields["id"].startswith("reply:"):
        return Deed(done)
    random = chance(seed, *delivery.key, times)
    lot = random.random()
    if lot < 0.06:
        return Deed("nack", 0, (("reason", "torture"), ("delay_s", round(random.uniform(0, 1.5), 1))))
    if lot < 0.08:
        return Deed("nack", 0, (("reason", "torture"), ("retry", False)))
    if lot < 0.12:
        return Deed("release")
    if lot < 0.20:
        return Deed(done, random.uniform(0.3, 4), touches=random.random() < 0.5)
    if lot < 0.22:
        return Deed("")
    if lot < 0.28 and done == "ack":
        return Deed("ack", confirm=False)
    return Deed(done)
