"""The torture counts what the relay's own client was given and has handled."""

import pytest

from bench.client_kills import Counted
from bench.torture.clients import judge


def promises(found: Counted, goes_back: bool = False) -> list[str]:
    return [breach.promise for breach in judge(found, goes_back)]


@pytest.mark.parametrize("goes_back", [False, True])
def test_a_client_loses_nothing_and_handles_once_whatever_the_store_does(goes_back: bool) -> None:
    assert promises(Counted(2, 2, [], [], []), goes_back) == []
    assert promises(Counted(2, 1, [1], [], []), goes_back) == ["the client loses nothing"]
    assert promises(Counted(2, 3, [], [1], []), goes_back) == ["the client handles once"]


def test_what_is_sent_again_after_a_store_went_back_may_be_overtaken() -> None:
    disordered = Counted(2, 2, [], [], ["t1"])

    assert promises(disordered) == ["the client keeps order"]
    assert promises(disordered, goes_back=True) == []
