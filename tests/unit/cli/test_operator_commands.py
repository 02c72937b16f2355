"""What operators' commands say: sentences, states put together from events, spans of time."""

import subprocess
from typing import Any

import pytest
from rich.console import Console

from relay.cli.operators import report
from relay.cli.operators.operator import why_sentence
from relay.cli.operators.report import span
from relay.cli.operators.top import drawn
from relay.cli.operators.trace import merged, quoted, state_by_events
from relay.cli.stores import redis_cli
from relay.settings import Settings


def an_agent(**fields: Any) -> dict[str, Any]:
    nothing = {"agent": "acme/bob", "waiting": 0, "held": 0, "delayed": 0, "dead": 0, "oldest_ms": None}
    return nothing | fields


NOW_S = 1_800_000_000


def ago(seconds: int) -> int:
    return (NOW_S - seconds) * 1_000


@pytest.mark.parametrize(
    ("agent", "sentence"),
    [
        (an_agent(), "acme/bob has no mail."),
        (an_agent(dead=2), "acme/bob has no mail; 2 in its dead-letter box."),
        (
            an_agent(waiting=1, why="nobody connected", last_seen_ms=ago(600), oldest_ms=ago(7_300)),
            "1 message waits for acme/bob: nobody connected, last seen 10 min ago; the oldest came 2 h ago.",
        ),
        (
            an_agent(waiting=3, why="nobody connected", last_seen_ms=None),
            "3 messages wait for acme/bob: nobody connected, and nobody ever was.",
        ),
        (
            an_agent(waiting=2, why="paused", paused={"by": "acme/root", "since_ms": ago(60), "reason": "repair"}),
            "2 messages wait for acme/bob: paused by acme/root 1 min ago (repair).",
        ),
        (
            an_agent(
                waiting=1,
                held=2,
                delayed=1,
                why="window of its session full",
                sessions=[{"session": "i.7", "holds": 2}, {"session": "i.8", "holds": 0}],
            ),
            "1 message waits for acme/bob: window of its session full, 2 messages are held by i.7, "
            "1 message is delayed.",
        ),
        (an_agent(held=1), "of acme/bob's mail, 1 message is held by leases."),
        (an_agent(delayed=2), "of acme/bob's mail, 2 messages are delayed."),
    ],
)
def test_why_is_one_sentence(agent: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report.time, "time", lambda: NOW_S)

    assert why_sentence(agent) == sentence


def test_why_tells_what_a_delayed_message_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report.time, "time", lambda: NOW_S)

    one = {"id": "m-1", "why": "backing off after a nack", "until_ms": ago(-5)}

    assert why_sentence(an_agent(delayed=2), one) == (
        "of acme/bob's mail, 2 messages are delayed (such as m-1: backing off after a nack, 5 s more)."
    )


def an_event(kind: str, at_ms: int, entry: str = "1-0", **fields: Any) -> dict[str, Any]:
    return {"kind": kind, "at_ms": at_ms, "from": "acme/alice", "to": "acme/bob", "entry": entry, **fields}


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ([], "unknown"),
        ([an_event("accepted", 1)], "unknown"),
        ([an_event("accepted", 1), an_event("acked", 2)], "acked"),
        ([an_event("accepted", 1), an_event("replied", 2)], "acked"),
        ([an_event("accepted", 1), an_event("expired", 2)], "expired"),
        ([an_event("accepted", 1), an_event("cancelled", 2)], "cancelled"),
        ([an_event("accepted", 1), an_event("nacked", 2), an_event("dead", 2)], "dead"),
        ([an_event("dead", 2), an_event("revived", 3, "3-0"), an_event("acked", 4, "3-0")], "acked"),
        ([an_event("acked", 4, "3-0"), an_event("accepted", 5, "5-0"), an_event("dead", 6, "5-0")], "dead"),
        ([an_event("refused", 1, "", reason="queue_full")], "refused"),
        ([an_event("accepted", 1), an_event("undone_acked", 2), an_event("dead", 3)], "dead"),
        ([an_event("undone_accepted", 1), an_event("undone_acked", 2)], "unknown"),
    ],
)
def test_events_tell_how_the_last_life_of_a_message_ended(events: list[dict[str, Any]], state: str) -> None:
    assert state_by_events(events)["state"] == state


def test_of_a_message_that_was_undone_events_tell_that_the_store_went_back() -> None:
    told = state_by_events([an_event("undone_accepted", 1), an_event("undone_acked", 2)])

    assert told["why"] == "the store went back in time to before it was accepted"


def test_what_both_log_and_archive_tell_is_told_once_and_in_order() -> None:
    accepted, acked = an_event("accepted", 1), an_event("acked", 1, who="i.1")

    assert merged([acked, accepted], [accepted]) == [accepted, acked]


def test_what_happened_in_one_millisecond_stays_in_its_order() -> None:
    nacked, dead = an_event("nacked", 2), an_event("dead", 2)

    assert merged([dead, nacked], []) == [nacked, dead]


@pytest.mark.parametrize("text", ["acme\tbob\tm-1", "it's", "a\\", "$(date)`date`", "x'; echo owned; '"])
def test_a_line_to_type_does_nothing_else_whatever_the_sender_called_its_message(text: str) -> None:
    typed = subprocess.run(["bash", "-c", f"printf %s {quoted(text)}"], capture_output=True, text=True, check=True)

    assert typed.stdout == text


@pytest.mark.parametrize("height", [12, 24, 50])
def test_top_fits_on_the_screen_and_shows_what_looks_wrong(height: int) -> None:
    busy = {"agent": "acme/bob", "oldest_age_s": None} | dict.fromkeys(
        ("accepted_per_s", "acked_per_s", "sent_per_s"), 1.0
    )
    wrong = {"severity": "warning", "text": "the mailbox is full"}
    look = dict.fromkeys(("online", "agents", "messages", "dead"), 1) | {"tenant": "acme", "at_ms": 1, "now": None}
    console = Console(width=120, height=height)

    with console.capture() as shown:
        console.print(drawn(look | {"busiest": [busy] * 20, "anomalies": [wrong] * 10}, height))

    assert len(shown.get().splitlines()) < height
    assert "the mailbox is full" in shown.get()


@pytest.mark.parametrize(
    ("seconds", "words"), [(-1, "0 s"), (0, "0 s"), (59, "59 s"), (60, "1 min"), (7_200, "2 h"), (172_800, "2 d")]
)
def test_spans_are_told_in_the_largest_unit(seconds: float, words: str) -> None:
    assert span(seconds) == words


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("unix:///var/lib/relay data/redis.sock", "redis-cli -s '/var/lib/relay data/redis.sock'"),
        ("redis://:secret@store:6380/0", "redis-cli -h store -p 6380"),
        ("rediss://user:secret@store", "redis-cli -h store -p 6379 --tls"),
        ("redis+cluster://:secret@one:7000,two:7001", "redis-cli -h one -p 7000 -c"),
        ("redis+sentinel://one:26379,two:26379/main", "redis-cli"),
    ],
)
def test_redis_cli_is_told_where_the_store_is_and_no_password(url: str, words: str) -> None:
    assert redis_cli(Settings(redis_url=url)) == words
