"""Which messages an act is about: every condition that is given must hold."""

import pytest

from relay.http.routes.acts import Chosen, fits
from relay.http.schemas.acts import Choice
from relay.store.record.head import Head

NOW_MS = 1_800_000_000_000
HEAD = Head("m-1", "acme/bob", "acme/alice", "job", "", 0, 4)
LETTER = Chosen("1-0", HEAD, 3, NOW_MS - 60_000, "cannot parse the order")


@pytest.mark.parametrize(
    ("choice", "is_meant"),
    [
        (Choice(), True),
        (Choice(type="job"), True),
        (Choice(type="report"), False),
        (Choice(reason="parse"), True),
        (Choice(reason="Parse"), False),
        (Choice(older_than_s=59), True),
        (Choice(older_than_s=60), False),
        (Choice(newer_than_s=61), True),
        (Choice(newer_than_s=60), False),
        (Choice(entries=["1-0"]), True),
        (Choice(entries=["2-0"]), False),
        (Choice(entries=[]), False),
        (Choice(type="job", reason="lock"), False),
    ],
)
def test_a_message_is_meant_if_every_condition_holds(choice: Choice, is_meant: bool) -> None:
    assert fits(LETTER, choice, None, NOW_MS) == is_meant


@pytest.mark.parametrize(("sender", "is_meant"), [("acme/alice", True), ("acme/carol", False), (None, True)])
def test_a_sender_is_meant_by_its_whole_address(sender: str | None, is_meant: bool) -> None:
    assert fits(LETTER, Choice(), sender, NOW_MS) == is_meant
