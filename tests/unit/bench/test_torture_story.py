"""A seed of the torture tells one story."""

from itertools import islice

import pytest

from bench.torture.books import Key
from bench.torture.story import BACK_REST_S, GOES_BACK, LAST_WAKES_S, LONGEST_STOP_S, TOPOLOGIES, write_story
from bench.torture.traffic import batches, members


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_a_seed_tells_its_story_again(topology: str) -> None:
    story = write_story(topology, 7, 120)

    assert write_story(topology, 7, 120) == story
    assert write_story(topology, 8, 120) != story


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("seconds", [15.0, 120.0])
def test_what_is_broken_is_mended_before_the_end(topology: str, seconds: float) -> None:
    for seed in range(20):
        story = write_story(topology, seed, seconds)

        assert [fault.at_s for fault in story] == sorted(fault.at_s for fault in story)
        assert all(fault.end_s <= seconds for fault in story)
        assert (story[-1].kind, story[-1].for_s) == ("lost wakes", LAST_WAKES_S) or story[-1].at_s > seconds - 2


def test_short_runs_have_short_stops() -> None:
    def longest(seconds: float) -> float:
        stories = (write_story("single", seed, seconds) for seed in range(200))
        return max(fault.for_s for story in stories for fault in story if fault.kind == "stop instance")

    assert longest(15) <= LONGEST_STOP_S / 8
    assert LONGEST_STOP_S * 0.6 < longest(120) <= LONGEST_STOP_S


def test_everybody_sends_what_the_seed_says_in_both_tenants() -> None:
    for member in members():
        first, again = (list(islice(batches(3, member), 20)) for _ in range(2))

        assert first == again
        keys = [draft.key for _, drafts in first for draft in drafts]
        assert len(set(keys)) == len(keys)
        assert all(key == Key(key.to, member.address, key.id) for key in keys)
        assert {key.to.partition("/")[0] for key in keys} == {member.tenant}


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_somebody_leaves_in_the_time_that_a_store_loses_and_is_away_when_it_has(topology: str) -> None:
    for seed in range(20):
        story = write_story(topology, seed, 60, goes_back=True)

        back = [fault for fault in story if fault.kind in GOES_BACK]
        assert back
        for lost in back:
            assert lost.end_s + BACK_REST_S <= 60
            assert any(one.kind == "offline agent" and lost.at_s < one.at_s < lost.end_s < one.end_s - 10
                       for one in story)  # fmt: skip
