"""What a process reads after it was stopped may be as old as the stop."""

from relay.core.instance.stalls import STALL_MS, Stalls


class Hand:
    def __init__(self) -> None:
        self.ms = 10_000

    def __call__(self) -> int:
        return self.ms


def test_what_is_read_while_the_clockwork_turns_is_new():
    clock = Hand()
    stalls = Stalls(clock)
    for _ in range(10):
        clock.ms += 250
        stalls.turn()

    clock.ms += 100

    assert stalls.sent_ms() == clock.ms


def test_what_is_read_after_a_stop_may_have_been_sent_when_it_began():
    clock = Hand()
    stalls = Stalls(clock)
    clock.ms += 30_000

    before_the_turn = stalls.sent_ms()
    stalls.turn()
    after_the_turn = stalls.sent_ms()
    clock.ms += STALL_MS
    stalls.turn()

    assert before_the_turn == after_the_turn == 10_000
    assert stalls.sent_ms() == clock.ms
