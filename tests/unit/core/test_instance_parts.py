"""The parts of an instance, without a store and without sockets: who is here, who is woken, who may have traffic."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from relay.core.instance.background import Background
from relay.core.instance.notifier import Notifier
from relay.core.instance.pauses import PauseSwitch
from relay.core.instance.readiness import Readiness
from relay.core.presence.ghosts import Ghosts
from relay.core.presence.recheck import look_for_mail
from relay.core.presence.sessions import Sessions
from relay.core.presence.wakes import WakeDispatcher
from relay.core.session.key_check import KeyCheck
from relay.core.session.session import Session
from relay.errors import StoreUnavailable
from relay.settings import Settings
from relay.store.record.taken import Taken
from relay.store.store import Store
from relay.store.wakes import Push, Wakes

BOB = "acme/bob"


class FakeGhosts:
    """Says what it is asked to do."""

    def disown(self, address: str, name: str) -> str:
        return f"disown {name} of {address}"

    def disown_all(self, address: str) -> str:
        return f"disown all of {address}"


class Pump:
    """Notes what it is told."""

    def __init__(self, log: list[str], name: str) -> None:
        self._log = log
        self._name = name
        self.can_fetch = True
        self.full = False

    def wake(self, _: int | None = None) -> bool:
        self._log.append(f"{self._name} woken")
        return self.can_fetch

    def look(self) -> bool:
        self._log.append(f"{self._name} looks")
        return self.can_fetch

    def is_full(self) -> bool:
        return self.full

    def lose(self, entry: str, others_first: bool) -> None:
        self._log.append(f"{self._name} loses {entry}{', others first' if others_first else ''}")


class Room:
    """An instance whose sessions only take notes."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.sessions = Sessions("i-1", max_per_agent=2)
        self.notifier = Notifier()
        self.spawned: list[str] = []
        self.wakes = WakeDispatcher(
            *(cast(Store, None), self.sessions, cast(Ghosts, FakeGhosts()), self.notifier),
            *(
                cast(KeyCheck, SimpleNamespace(check=lambda _: "check keys")),
                cast(PauseSwitch, self),
                cast(Background, self),
            ),
        )

    def turn(self, name: str, on: bool) -> None:
        self.log.append(f"{name} is {'paused' if on else 'resumed'}")

    def hears(self, lines: list[list[str]]) -> None:
        self.wakes.dispatch(Wakes(lines, [], []))

    def spawn(self, work: Any) -> None:
        self.spawned.append(str(work))
        if hasattr(work, "close"):
            work.close()

    def a_session(self, address: str = BOB, key: str | None = None) -> Session:
        name = self.sessions.new_name()
        session = cast(
            Session,
            SimpleNamespace(
                name=name,
                address=address,
                identity=SimpleNamespace(key=key),
                pump=Pump(self.log, name),
                read_receipts=lambda: self.log.append(f"{name} reads receipts"),
                close=lambda word: self.log.append(f"{name} closed: {word}"),
            ),
        )
        self.sessions.add(session)
        return session


@pytest.fixture
def room() -> Room:
    return Room()


# -- the registry


def test_a_session_is_found_by_name_and_by_address(room: Room) -> None:
    session = room.a_session()

    assert room.sessions.get(session.name) is session
    assert room.sessions.of(BOB) == [session]
    assert room.sessions.addresses() == [BOB]


def test_a_session_ends_once(room: Room) -> None:
    session = room.a_session()

    assert room.sessions.remove(session)
    assert not room.sessions.remove(session)
    assert (len(room.sessions), room.sessions.addresses()) == (0, [])


def test_an_agent_has_no_more_sessions_than_it_may(room: Room) -> None:
    room.a_session()
    before = room.sessions.has_too_many(BOB)
    room.a_session()

    assert (before, room.sessions.has_too_many(BOB)) == (False, True)


def test_a_name_tells_its_instance(room: Room) -> None:
    assert room.sessions.is_name_of_ours(room.sessions.new_name())
    assert not room.sessions.is_name_of_ours("i-2.1")


# -- wakes


def test_sessions_of_an_agent_are_woken_in_turn(room: Room) -> None:
    room.a_session()
    room.a_session()

    room.hears([["mail", BOB]] * 3)

    assert room.log == ["i-1.1 woken", "i-1.2 woken", "i-1.1 woken"]


def test_one_that_cannot_fetch_leaves_it_to_the_next(room: Room) -> None:
    cast(Pump, room.a_session().pump).can_fetch = False
    room.a_session()

    room.hears([["mail", BOB]])

    assert room.log == ["i-1.1 woken", "i-1.2 woken"]


def test_who_passes_mail_on_is_not_woken_for_it(room: Room) -> None:
    room.a_session()
    room.a_session()

    room.hears([["mail", BOB, "i-1.1"]])

    assert room.log == ["i-1.2 woken"]


def test_mail_for_nobody_here_is_disowned(room: Room) -> None:
    room.hears([["mail", BOB]])

    assert room.spawned == ["disown all of acme/bob"]


def test_a_push_to_a_session_that_is_not_here_disowns_it(room: Room) -> None:
    row = Taken("5-0", 1, "acme\tbob\talice\tm-1\t\t\t0\t2", "", b"{}")

    room.wakes.dispatch(Wakes([], [Push("i-1.7", 1, [row])], []))

    assert room.spawned == ["disown i-1.7 of acme/bob"]


def test_mail_wakes_whoever_waits_for_it(room: Room) -> None:
    with room.notifier.waiting_for(("mail", BOB)) as event:
        room.hears([["mail", BOB]])

        assert event.is_set()
    assert not room.spawned


@pytest.mark.parametrize(
    ("line", "becomes"),
    [
        (["receipts", BOB], "i-1.1 reads receipts"),
        (["lost", "i-1.1", "5-0"], "i-1.1 loses 5-0"),
        (["overdue", "i-1.1", "5-0"], "i-1.1 loses 5-0, others first"),
        (["replaced", "i-1.1"], "i-1.1 closed: replaced"),
        (["removed", "i-1.1"], "i-1.1 closed: replaced"),
    ],
)
def test_each_line_reaches_whom_it_is_about(room: Room, line: list[str], becomes: str) -> None:
    room.a_session()
    room.a_session("acme/carol")

    room.hears([line])

    assert room.log == [becomes]


def test_a_deleted_agent_cannot_go_on_with_its_key(room: Room) -> None:
    room.a_session(key="k")

    room.hears([["removed", "i-1.1"]])

    assert room.log == ["i-1.1 closed: unauthorized"]


def test_lines_about_who_is_not_here_any_more_do_nothing(room: Room) -> None:
    room.hears([["lost", "i-1.9", "5-0"], ["replaced", "i-1.9"], ["removed", "i-1.9"], ["later", "words"]])

    assert room.log == room.spawned == []


def test_a_call_that_waits_for_a_task_hears_of_it(room: Room) -> None:
    with room.notifier.waiting_for(("task", BOB, "m-1")) as event:
        room.hears([["task", BOB, "m-2"]])
        before = event.is_set()
        room.hears([["task", BOB, "m-1"]])

        assert (before, event.is_set()) == (False, True)
    assert not room.notifier.is_awaited(("task", BOB, "m-1"))


# -- the recheck


def test_one_session_looks_for_all_of_an_agent(room: Room) -> None:
    look_for_mail([room.a_session(), room.a_session()])

    assert room.log == ["i-1.1 looks"]


def test_a_full_session_is_compared_with_the_store_and_another_fetches(room: Room) -> None:
    first, second = room.a_session(), room.a_session()
    cast(Pump, first.pump).full = True

    look_for_mail([first, second])

    assert room.log == ["i-1.1 looks", "i-1.2 looks"]


# -- readiness


class FakeStore:
    def __init__(self) -> None:
        self.meta = SimpleNamespace(epoch="")
        self.settings = Settings()
        self.reached = 1.0
        self.safety: Any = None
        self.is_away = False

    def reached_share(self) -> float:
        return self.reached

    async def inspect(self) -> bool:
        if self.is_away:
            raise StoreUnavailable("away")
        is_new = not self.meta.epoch
        self.meta.epoch = "e-1"
        return is_new


async def test_an_instance_is_ready_when_it_has_looked_at_the_store() -> None:
    store = FakeStore()
    readiness = Readiness(cast(Store, store), lambda: 1.0)

    before = readiness.reason()
    is_lost = await readiness.inspect()

    assert before == "the store has not been looked at yet"
    assert readiness.reason() is None
    assert not is_lost  # the first look only learns of the data


async def test_an_instance_says_why_it_is_not_ready() -> None:
    store, heard = FakeStore(), [0.0]
    readiness = Readiness(cast(Store, store), lambda: heard[0])
    await readiness.inspect()

    reasons = [readiness.reason()]
    store.reached = 0.0
    reasons.append(readiness.reason())
    store.reached = heard[0] = 1.0
    store.is_away = True
    with pytest.raises(StoreUnavailable):
        await readiness.inspect()
    reasons.append(readiness.reason())

    assert reasons == ["the subscription for wakes is down", "the store does not answer", "away"]


async def test_an_instance_that_reaches_enough_of_the_shards_is_ready() -> None:
    store = FakeStore()
    readiness = Readiness(cast(Store, store), lambda: store.reached)
    await readiness.inspect()

    store.reached, store.is_away = 0.66, True  # the master that knows the epoch is among those that are away
    is_lost = await readiness.inspect()
    with_most = readiness.reason()
    store.reached = 0.33

    assert (is_lost, with_most) == (False, None)
    assert readiness.reason() == "the store does not answer"


def test_a_pause_is_handed_to_the_switch(room: Room) -> None:
    room.hears([["paused", "acme"], ["resumed", BOB]])

    assert room.log == ["acme is paused", f"{BOB} is resumed"]


def test_a_probe_is_answered(room: Room) -> None:
    room.hears([["probe", "t-1"]])

    assert len(room.spawned) == 1
