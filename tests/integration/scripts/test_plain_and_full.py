"""The plain scripts and the full ones: the same traffic leaves the same in the store, and gets the same answers."""

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from relay.store.mailbox import settle
from relay.store.mailbox.accept_plain import PUSH_BODY_BYTES
from tests.builders import ALICE, BOB, CAROL, a_message
from tests.conftest import MakeDesk
from tests.integration.scripts.twins import Sending, Twin, differences

DAN, EVE, FAY, GUS = "acme/dan", "acme/eve", "acme/fay", "other/gus"
STEPS = 60
ZOE, IDA = "acme/zoe", "other/ida"
LISTENING, DEAF = "listening.1", "deaf.1"  # sessions that sent, whose instances hear of receipts or do not
# name -> address, session, mode, window, ack timeout
SERVING = {
    "bob": (BOB, "{here}.1", "exclusive", 4, 0.0),
    "carol": (CAROL, "elsewhere.2", "exclusive", 3, 0.0),
    "dan 1": (DAN, "{here}.3", "shared", 2, 0.0),
    "dan 2": (DAN, "{here}.4", "shared", 3, 0.0),
    "eve": (EVE, "{here}.5", "exclusive", 20, 30.0),
    "gus": (GUS, "{here}.6", "exclusive", 20, 0.0),
}


class Twins:
    """Both do the same, and are compared after each step."""

    def __init__(self, plain: Twin, full: Twin) -> None:
        self.plain = plain
        self.full = full

    async def do(self, what: str, act: Callable[[Twin], Awaitable[Any]]) -> None:
        answers = [await act(twin) for twin in (self.plain, self.full)]
        for twin in (self.plain, self.full):
            await twin.come_to_rest()
            await twin.desk.store.pipeline.finish()

        assert answers[0] == answers[1], what
        assert differences(*(self._of(twin) for twin in (self.plain, self.full))) == {}, what

    def _of(self, twin: Twin) -> dict[str, Any]:
        receipts = {sender: twin.receipts_of(sender) for sender in (ALICE, ZOE, IDA)}
        return twin.content() | {"held": twin.held(), "stale": twin.stale(), "receipts": receipts}


class Traffic:
    """What happens next, by a seed."""

    def __init__(self, seed: int, twins: Twins) -> None:
        self._random = Random(seed)
        self._twins = twins
        self._sent: list[Sending] = []
        self._joined = 10

    async def step(self) -> None:
        verbs = (self._send, self._ack, self._give_up, self._rejoin, self._wait, self._govern)
        (verb,) = self._random.choices(verbs, (40, 40, 8, 3, 6, 3))
        await verb()

    async def _send(self) -> None:
        sendings = [self._sending() for _ in range(self._random.choice((1, 1, 2, 3, 6, 10)))]
        self._sent += sendings
        await self._twins.do(f"send {sendings}", lambda twin: twin.send(sendings))

    def _sending(self) -> Sending:
        chance = self._random
        if self._sent and chance.random() < 0.12:
            return chance.choice(self._sent)
        to = chance.choice((BOB, BOB, BOB, CAROL, DAN, DAN, EVE, FAY, GUS))
        size = PUSH_BODY_BYTES if chance.random() < 0.06 else chance.choice((1, 10, 300))
        message = a_message(f"m-{chance.getrandbits(64)}", to=to, payload="x" * size, **self._options())
        sender = IDA if to == GUS else chance.choice((ALICE, ZOE))
        return Sending(sender, chance.choice(("", LISTENING, DEAF)), message)

    def _options(self) -> dict[str, Any]:
        chance = self._random
        options: dict[str, Any] = {"receipt": chance.choice((True, True, False, "all"))}
        if chance.random() < 0.4:
            options["thread"] = chance.choice(("t-1", "t-2", "a\tb"))
        if chance.random() < 0.2:
            options["type"] = "order\nnew"
        if chance.random() < 0.2:
            options["ttl_s"] = chance.choice((20, 90))
        if chance.random() < 0.02:
            options |= chance.choice(({"priority": 3}, {"delay_s": 5}, {"ack_timeout_s": 10}, {"max_attempts": 2}))
        return options

    async def _ack(self) -> None:
        """Some of what some sessions hold or held, each in one settlement or in two."""
        known = {name: [entry for entry, _ in rows] for name, rows in self._twins.plain.held().items() if rows}
        for name, entries in self._twins.plain.stale().items():
            if entries and self._random.random() < 0.1:
                known[name] = known.get(name, []) + entries[:1]
        acks: list[tuple[str, list[str]]] = []
        for name in self._random.sample(sorted(known), min(len(known), self._random.choice((1, 1, 2, 4)))):
            chosen = [entry for entry in known[name] if self._random.random() < 0.7] or known[name][:1]
            cut = self._random.randint(0, len(chosen))
            acks += [(name, part) for part in (chosen[:cut], chosen[cut:]) if part]
        self._random.shuffle(acks)
        if acks:
            await self._twins.do(f"ack {acks}", lambda twin: twin.ack(acks))

    async def _give_up(self) -> None:
        name, rows = self._random.choice(sorted(self._twins.plain.held().items()))
        chosen = [entry for entry, _ in rows[: self._random.randint(1, 3)]]
        how, options = self._random.choice(
            (("nack", {"delay_s": 0, "reason": "no\ttabs"}), ("nack", {"delay_s": 5}), ("release", {}))
        )
        if chosen:
            await self._twins.do(f"{how} {name} {chosen}", lambda twin: twin.give_up(name, how, chosen, **options))

    async def _rejoin(self) -> None:
        """A session ends, or is replaced while it believes to hold something."""
        name = self._random.choice(sorted(SERVING))
        if self._random.random() < 0.5:
            await self._twins.do(f"leave {name}", lambda twin: twin.leave(name))
        self._joined += 1
        number = self._joined
        await self._twins.do(f"join {name}", lambda twin: serve(twin, name, number))

    async def _wait(self) -> None:
        """Time passes, and the workers have done what is due, or not yet."""
        seconds, is_worked = self._random.choice((0.2, 3, 6, 25, 400)), self._random.random() < 0.7
        await self._twins.do(f"wait {seconds} {is_worked}", lambda twin: wait(twin, seconds, is_worked))

    async def _govern(self) -> None:
        """What makes a mailbox special, or ordinary again."""
        act = self._random.choice(
            (
                lambda store: store.agents.change_blocks(BOB, [ZOE], []),
                lambda store: store.agents.change_blocks(BOB, [], [ZOE]),
                lambda store: store.pauses.pause(BOB, ALICE),
                lambda store: store.pauses.resume(BOB, ALICE),
                lambda store: store.limits.set_caps(EVE, 5, 2_000),
                lambda store: store.limits.set_caps(EVE, None, None),
            )
        )

        async def govern(twin: Twin) -> None:
            await act(twin.desk.store)

        await self._twins.do("govern", govern)


async def serve(twin: Twin, name: str, number: int | None = None) -> str:
    address, session, mode, window, timeout_s = SERVING[name]
    if number:
        session = f"{session.rpartition('.')[0]}.{number}"
    return await twin.join(name, address, session.format(here=twin.desk.store.instance), mode, window, timeout_s)


async def wait(twin: Twin, seconds: float, is_worked: bool) -> list[str]:
    twin.desk.clock.advance(seconds)
    stay_alive(twin)
    return sorted(await twin.desk.overdue()) if is_worked else []


def stay_alive(twin: Twin) -> None:
    for instance in (twin.desk.store.instance, "elsewhere"):
        twin.desk.is_alive(instance, 10_000)


@pytest.fixture
async def twins(make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch) -> Twins:
    monkeypatch.setattr(settle, "SPECIAL_S", -1.0)  # one ack that is not plain keeps none of the next from it
    limits = {"mailbox_max_messages": 8, "mailbox_max_bytes": 10_000, "dedup_window_s": 600}
    mailboxes = [BOB, CAROL, DAN, EVE, FAY, GUS]
    twins = [Twin(await make_desk(**limits), is_plain, mailboxes) for is_plain in (True, False)]
    for twin in twins:
        stay_alive(twin)
        for sender in (ALICE, ZOE, IDA):
            twin.desk.store.agents.appear(sender)
        twin.desk.ears(LISTENING.partition(".")[0])
        for name in SERVING:
            await serve(twin, name)
    return Twins(*twins)


@pytest.mark.parametrize("seed", range(6))
async def test_the_same_traffic_leaves_the_same(twins: Twins, seed: int) -> None:
    traffic = Traffic(seed, twins)

    for _ in range(STEPS):
        await traffic.step()

    assert twins.full.plain_sends == twins.full.plain_acks == 0
    assert twins.plain.plain_sends > 15
    assert twins.plain.plain_acks > 8


async def test_receipts_are_cut_into_the_same_runs(make_desk: MakeDesk) -> None:
    """As many as an entry of the outbox has bound a frame."""
    size = Random(1)
    ids = [f"{n}-" + "x" * size.choice((1, 30, 120)) for n in range(100)]
    runs = []
    for is_plain in (True, False):
        twin = Twin(await make_desk(), is_plain, [BOB])
        await twin.join("bob", BOB, twin.desk.new_session(), "exclusive", window=100, timeout_s=0)
        await twin.send([Sending(ALICE, "", a_message(id)) for id in ids])
        await twin.come_to_rest()
        await twin.ack([("bob", [entry for entry, _ in twin.held()["bob"]])])
        await twin.desk.store.pipeline.finish()
        runs.append([row["count"] for _, row in twin.desk.redis.xrange(twin.desk.keys.receipts(ALICE))])

    assert runs[0] == runs[1]
    assert len(runs[0]) > 3
