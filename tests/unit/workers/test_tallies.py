"""Tallies: what events add up to."""

from relay.store.record.events import COLUMNS
from relay.store.watching.snapshots import Percentiles
from workers.tallies import MOST_NOTABLE, AgentTally, Latencies, Tallies

AT_MS = 1_800_000_000_000


def event(kind: str, **fields: object) -> list[str]:
    values: dict[str, object] = {
        "kind": kind,
        "at_ms": AT_MS,
        "entry": f"{AT_MS}-0",
        "attempt": 1,
        "who": "i1.7",
        "tenant": "acme",
        "to": "bob",
        "from": "alice",
        "id": "m-1",
        **fields,
    }
    return [str(values.get(name, "")) for name in COLUMNS]


def accepted(**fields: object) -> list[str]:
    return event("accepted", **{"bytes": 10, "instance": "i1", "attempt": "", "who": "", **fields})


def tallied(*events: list[str], weight: float = 1) -> Tallies:
    tallies = Tallies()
    for columns in events:
        tallies.add(3, AT_MS, columns, weight)
    return tallies


def test_each_kind_is_counted_for_its_tenant() -> None:
    tallies = tallied(accepted(), accepted(), event("acked"), accepted(tenant="other"), event("refused"))

    assert dict(tallies.tenants["acme"].counts) == {"accepted": 2, "acked": 1, "refused": 1}
    assert dict(tallies.tenants["other"].counts) == {"accepted": 1}
    assert (tallies.shards[3].accepted, tallies.shards[3].acked) == (3, 1)


def test_a_first_delivery_is_counted_with_what_ends_it() -> None:
    acme = tallied(event("acked", taken_at=AT_MS), event("nacked", taken_at=AT_MS), event("taken", attempt=2)).tenants[
        "acme"
    ]

    assert acme.counts["taken"] == 3
    assert acme.sessions["i1.7"].taken == 3


def test_latency_is_from_the_entry_to_taken_and_to_acked() -> None:
    acme = tallied(event("acked", at_ms=AT_MS + 30, taken_at=AT_MS + 10)).tenants["acme"]

    assert acme.taken_ms.percentiles() == Percentiles(10, 10, 10)
    assert acme.acked_ms.percentiles() == Percentiles(30, 30, 30)
    assert acme.sessions["i1.7"].slowest_ms == 20


def test_an_agent_has_what_came_and_what_it_sent() -> None:
    agents = (
        tallied(
            *(accepted(bytes=5), accepted(bytes=9, id="m-2"), accepted(bytes=7)),
            *(event("acked", taken_at=AT_MS), event("dead"), event("cancelled")),
            *(event("refused", reason="queue_full"), event("refused", reason="blocked")),
            *(event("expired", attempt=0), event("expired", attempt=1, taken_at=AT_MS)),
        )
        .tenants["acme"]
        .agents
    )

    assert agents["bob"] == AgentTally(
        accepted=3, acked=1, refused_full=1, expired_unread=1, cancelled=1, dead=1, largest_bytes=0
    )
    assert agents["alice"] == AgentTally(sent=3, largest_bytes=9, largest_id="m-2")


def test_what_stands_for_many_counts_as_many() -> None:
    acme = tallied(accepted(), event("acked", taken_at=AT_MS), weight=2.5).tenants["acme"]

    assert (acme.counts["accepted"], acme.counts["acked"], acme.agents["bob"].acked) == (2.5, 2.5, 2.5)


def test_failures_and_redeliveries_are_kept_one_by_one_up_to_a_number() -> None:
    acme = tallied(
        accepted(), event("acked"), event("nacked", reason="a\\tb"), *[event("dead")] * MOST_NOTABLE
    ).tenants["acme"]

    assert len(acme.notable) == MOST_NOTABLE
    first, second = acme.notable[:2]
    assert (first.kind, first.agent, first.sender, first.id, first.reason) == (
        *("nacked", "acme/bob", "acme/alice", "m-1", "a\tb"),
    )
    assert second.kind == "dead"


def test_a_clock_is_judged_by_its_quickest_event() -> None:
    tallies = Tallies()
    for behind_ms in (900, 300, 2_000):
        tallies.add(0, AT_MS + behind_ms, accepted())

    assert tallies.clocks == {"i1": 300}


def test_what_cannot_be_read_hides_nothing() -> None:
    tallies = tallied(["garbage"], accepted())

    assert dict(tallies.tenants["acme"].counts) == {"accepted": 1}


def test_percentiles_are_told_to_two_digits() -> None:
    latencies = Latencies()
    for ms in range(1, 1_001):
        latencies.add(ms)

    assert latencies.percentiles() == Percentiles(500, 950, 990)
    assert Latencies().percentiles() is None


def test_a_negative_latency_is_none() -> None:
    latencies = Latencies()
    latencies.add(-5)

    assert latencies.percentiles() == Percentiles(0, 0, 0)
