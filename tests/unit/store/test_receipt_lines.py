"""Receipts as the store keeps them: the JSON that is made of them has what they had, and a line has little more."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.store.record.receipt_lines import JSON_BYTES, as_json, delivered_line

ALICE = "acme/alice"
AT_MS = 1_700_000_000_000
FIELDS = ("id", "to", "state", "was_stored", "attempt", "at_ms", "latency_ms", "reason")

ids = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=128)
names = st.text("abcxyz0189._-", min_size=1, max_size=64)
receipts = st.fixed_dictionaries(
    {
        "id": ids,
        "to": names.map(lambda name: f"acme/{name}"),
        "state": st.sampled_from(("delivered", "dead", "expired")),
        "was_stored": st.booleans(),
        "attempt": st.integers(0, 1_000),
        "at_ms": st.just(AT_MS),
        "latency_ms": st.integers(0, 10**12),
    },
    optional={"reason": st.text(st.characters(exclude_categories=("Cs",)), min_size=1)},
)


def a_line(receipt: dict[str, Any]) -> str:
    """As note_receipt in shard.lua writes it."""
    columns = [
        *(receipt["id"], receipt["to"].partition("/")[2], str(receipt["latency_ms"])),
        "1" if receipt["was_stored"] else "",
        str(receipt["attempt"]) if receipt["attempt"] != 1 else "",
        receipt["state"] if receipt["state"] != "delivered" else "",
        orjson.dumps(receipt["reason"]).decode() if "reason" in receipt else "",
    ]
    return "\t".join(columns).rstrip("\t")


def a_run(*lines: str) -> str:
    return "\n".join((str(AT_MS), *lines))


@given(st.lists(receipts, min_size=1, max_size=5))
def test_the_json_of_a_run_has_every_field_of_every_receipt_in_order(some: list[dict[str, Any]]) -> None:
    found = as_json(a_run(*map(a_line, some)), ALICE)

    assert found == b",".join(orjson.dumps({name: one[name] for name in FIELDS if name in one}) for one in some)


@given(receipts.filter(lambda one: one["state"] == "delivered" and "reason" not in one))
def test_an_instance_and_a_script_write_the_same_line(receipt: dict[str, Any]) -> None:
    name = receipt["to"].partition("/")[2]

    line = delivered_line(receipt["id"], name, receipt["latency_ms"], receipt["was_stored"], receipt["attempt"])

    assert line == a_line(receipt)


@pytest.mark.parametrize(
    ("line", "json"),
    [
        (
            "m-1\tbob\t12",
            '{"id":"m-1","to":"acme/bob","state":"delivered","was_stored":false,"attempt":1,"at_ms":1700000000000,'
            '"latency_ms":12}',
        ),
        (
            'say "hi"\\\tbob\t0\t1\t3\tdead\t"tab \\t, line \\n, ü"',
            r'{"id":"say \"hi\"\\","to":"acme/bob","state":"dead","was_stored":true,"attempt":3,"at_ms":1700000000000,'
            r'"latency_ms":0,"reason":"tab \t, line \n, ü"}',
        ),
        (
            "m-2\tbob\t500\t\t0\texpired",
            '{"id":"m-2","to":"acme/bob","state":"expired","was_stored":false,"attempt":0,"at_ms":1700000000000,'
            '"latency_ms":500}',
        ),
    ],
)
def test_a_line_becomes_this_json(line: str, json: str) -> None:
    assert as_json(a_run(line), ALICE).decode() == json


def test_nothing_becomes_no_json() -> None:
    assert as_json("", ALICE) == b""


@given(receipts.filter(lambda one: '"' not in one["id"] and "\\" not in one["id"]))
def test_the_json_of_a_receipt_is_no_longer_than_it_is_taken_for(receipt: dict[str, Any]) -> None:
    line = a_line(receipt)

    assert len(as_json(a_run(line), ALICE)) <= len(line.encode()) + len(ALICE) + JSON_BYTES
