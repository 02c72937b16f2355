"""Events as the log has them: nothing that is left out is lost."""

import pytest

from relay.store.record.events import COLUMNS, columns_of, doer, parse

AT_MS = 1_800_000_000_000
INSTANCE = "80474b79a9"


def an_entry(*lines: str, first: str = f"{AT_MS}\t{INSTANCE}") -> list[bytes]:
    return [b"e1", "\n".join((first, *lines)).encode()]


def read(fields: list[bytes]) -> list[dict[str, object]]:
    return [parse("5-0", 0, columns).fields for columns in columns_of(fields)]


def test_an_event_has_all_columns() -> None:
    accepted = "accepted\t5-0\t7\t\t\t\t\tacme\tbob\talice\tm-1\tjob\tt\t3\t256"
    acked = "acked\t5-0\t\t1\t.24\t\t30\tacme\tbob\talice\tm-1"

    first, second = read(an_entry(accepted, acked))

    message = {"entry": "5-0", "tenant": "acme", "to": "bob", "from": "alice", "id": "m-1"}
    logged = dict.fromkeys(COLUMNS, "") | {"at_ms": AT_MS, "instance": INSTANCE} | message
    head = {"seq": 7, "type": "job", "thread": "t", "priority": 3, "bytes": 256}
    assert first == logged | head | {"kind": "accepted"}
    assert second == logged | {"kind": "acked", "attempt": 1, "who": f"{INSTANCE}.24", "taken_at": AT_MS - 30}


def test_empty_columns_at_the_end_are_left_out() -> None:
    joined, paused = read(an_entry("joined\t\t\t\t.24\tshared\t\tacme\tbob", "paused\t\t\t\tacme/root\t\t\tacme"))

    assert (joined["tenant"], joined["to"], joined["id"], joined["bytes"]) == ("acme", "bob", "", "")
    assert (paused["who"], paused["tenant"], paused["to"]) == ("acme/root", "acme", "")


@pytest.mark.parametrize(
    ("who", "written"),
    [
        (f"{INSTANCE}.24", ".24"),  # a session of the instance that wrote it
        ("5f0c2a9d1e.24", "5f0c2a9d1e.24"),  # of another one
        (f"{INSTANCE}0.24", f"{INSTANCE}0.24"),
        ("http..24.0a1b2c3d", "http..24.0a1b2c3d"),  # the lease of a consumer that is named ".24"
        (".24/root", "\\.24/root"),  # somebody of the tenant ".24"
        (".24", "\\.24"),
        ("", ""),
    ],
)
def test_whoever_did_it_is_named_without_a_doubt(who: str, written: str) -> None:
    line = f"acked\t5-0\t\t1\t{written}\t\t\tacme\tbob\talice\tm-1"

    assert doer(who, INSTANCE) == written
    assert [event["who"] for event in read(an_entry(line))] == [who]


@pytest.mark.parametrize("bad", ["", "garbage", "acked\t5-0\t\t1\t.24\t\tlong\tacme", "acked" + "\t" * 15])
def test_a_line_that_cannot_be_read_hides_no_other(bad: str) -> None:
    good = "swept\t\t\t\t\t3\t\tacme\tbob"

    before, damaged, after = columns_of(an_entry(good, bad, good))

    assert before == after
    assert parse("5-0", 0, before).fields["reason"] == "3"
    with pytest.raises(ValueError, match="zip"):
        parse("5-0", 0, damaged)


def test_a_field_of_another_version_is_an_event_that_cannot_be_read() -> None:
    (unknown,) = columns_of([b"e9", b"swept\t\t\t\t\t3\t\tacme\tbob"])

    with pytest.raises(ValueError, match="zip"):
        parse("5-0", 0, unknown)
