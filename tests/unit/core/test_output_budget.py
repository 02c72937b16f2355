"""What may wait for whom: many slow readers leave room for the one who reads."""

import pytest

from relay.core import output_budget
from relay.core.output_budget import LARGEST_SHARE, Output, OutputBudget

MIB = 2**20


class Buffer:
    """A socket that takes nothing unless it is told to."""

    def __init__(self) -> None:
        self.size = 0

    def get_write_buffer_size(self) -> int:
        return self.size


def a_reader(budget: OutputBudget) -> tuple[Output, Buffer]:
    buffer = Buffer()
    return Output(budget, buffer), buffer


def fill(reader: Output, buffer: Buffer, chunk: int = 1_000) -> None:
    """Gives a reader that does not read as much as it may have."""
    while reader.room():
        reader.wrote(chunk)
        buffer.size += chunk
        reader.flushed()


def test_one_slow_reader_has_its_share_and_no_more() -> None:
    budget = OutputBudget(128 * MIB)
    reader, buffer = a_reader(budget)

    fill(reader, buffer)

    assert LARGEST_SHARE <= budget.used == reader.waiting < LARGEST_SHARE + 1_000


@pytest.mark.parametrize("count", [10, 100, 300])
def test_however_many_do_not_read_there_is_room_for_one_who_does(count: int) -> None:
    budget = OutputBudget(16 * MIB)
    for _ in range(count):
        fill(*a_reader(budget))

    newcomer, _ = a_reader(budget)

    assert budget.used < budget.limit
    assert newcomer.room() > 0


def test_patience_is_short_when_much_waits_to_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(output_budget.time, "monotonic", lambda: now[0])
    budget = OutputBudget(4 * MIB)
    first, buffer = a_reader(budget)
    fill(first, buffer)

    assert not first.is_stuck(now[0] + 3)
    for _ in range(300):
        fill(*a_reader(budget))
    assert first.is_stuck(now[0] + 3)


def test_what_was_asked_of_the_store_counts() -> None:
    budget = OutputBudget(MIB)
    reader, _ = a_reader(budget)
    before = reader.room()

    reader.reserve(before)

    assert reader.room() == 0
    reader.reserve(-before)
    assert reader.room() == before


def test_what_is_written_counts_before_it_is_in_the_socket() -> None:
    budget = OutputBudget(MIB)
    reader, _ = a_reader(budget)

    reader.wrote(100_000)

    assert reader.room() == 0
    reader.flushed()
    assert reader.room() > 0


def test_who_has_gone_leaves_nothing_behind() -> None:
    budget = OutputBudget(MIB)
    reader, buffer = a_reader(budget)
    fill(reader, buffer)
    reader.reserve(500)

    reader.close()
    reader.reserve(-500)
    reader.wrote(1_000)
    reader.flushed()

    assert (budget.used, budget.outputs, reader.room()) == (0, set(), 0)


def test_only_a_reader_that_takes_nothing_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(output_budget.time, "monotonic", lambda: now[0])
    (reader, buffer), (slow, slow_buffer) = (a_reader(OutputBudget(64 * MIB)) for _ in range(2))
    stuck = []
    for one, size in ((reader, buffer), (slow, slow_buffer)):
        one.wrote(2_000_000)
        size.size = 2_000_000
        one.flushed()

    for _ in range(30):
        now[0] += 1
        slow.wrote(5_000)  # reads as much as it is given
        slow.flushed()
        stuck.append((reader.is_stuck(now[0]), slow.is_stuck(now[0])))

    assert stuck[9] == (False, False)
    assert stuck[10] == (True, False)
    assert stuck[-1] == (True, False)
