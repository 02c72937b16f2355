"""The points at which the growth of cost is measured."""

from bench.growth import GROWTHS, MOST_BYTES_IN_FLIGHT, MOST_IN_FLIGHT, Case, cases


def test_one_thing_grows_at_a_time():
    for grows, case in cases():
        usual = {name: getattr(Case(), name) for name in GROWTHS if name != grows}

        assert {name: getattr(case, name) for name in usual} == usual


def test_every_growth_begins_or_passes_at_the_usual_case():
    assert [grows for grows, values in GROWTHS.items() if getattr(Case(), grows) not in values] == []


def test_what_is_under_way_is_bounded_however_many_and_large_messages_are():
    for _, case in cases():
        assert 1 <= case.batch <= case.in_flight
        assert case.pairs * case.in_flight <= MOST_IN_FLIGHT
        assert case.pairs * case.in_flight * case.payload_bytes <= MOST_BYTES_IN_FLIGHT


def test_growths_are_chosen_by_name():
    assert [case.shards for _, case in cases("shards")] == list(GROWTHS["shards"])
