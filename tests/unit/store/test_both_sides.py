"""What both the scripts and Python spell is the same on both sides."""

import re
from importlib.resources import files

import pytest

from relay.store import keys
from relay.store.mailbox import ack_plain, leases
from relay.store.record import receipt_lines

LUA = {
    file.name.removesuffix(".lua"): file.read_text()
    for floor in files("relay.store").joinpath("scripts").iterdir()
    for file in floor.iterdir()
}
CONSTANTS = re.compile(r"^local ([A-Z_]+(?:, [A-Z_]+)*) = (.+?)(?:  --.*)?$", re.MULTILINE)


def values_of(name: str) -> set[str]:
    """What the scripts that have a constant of this name give it."""
    found = [
        (names.split(", "), values.split(", ")) for text in LUA.values() for names, values in CONSTANTS.findall(text)
    ]
    return {value for names, values in found for own, value in zip(names, values, strict=False) if own == name}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ALL_LANES", f"'{keys.ALL_LANES}'"),
        ("GROUP", f"'{keys.GROUP}'"),
        ("SHARD_KEYS", str(keys.SHARD_KEYS)),
        ("PULLER", f"'{leases.PULLER}'"),
        ("RUN_BYTES", str(receipt_lines.RUN_BYTES)),
        ("JSON_BYTES", str(receipt_lines.JSON_BYTES)),
    ],
)
def test_a_constant_is_the_same_wherever_it_is(name: str, value: str) -> None:
    assert values_of(name) == {value}


def test_plain_acks_read_the_columns_of_opts_that_the_scripts_name() -> None:
    named = re.search(r"^-- opts are `([^`]+)`", LUA["shard"], re.MULTILINE)

    assert named is not None
    columns = named[1].split(" \\t ")
    read = ("SEQ", "ACCEPTED_AT", "RECEIPT", "TIMED", "VIA")
    assert {name: getattr(ack_plain, name) for name in read} == {name: columns.index(name.lower()) for name in read}


def test_plain_acks_remove_all_that_may_be_due_to_a_message() -> None:
    removed = re.search(r"^ +redis\.call\('ZREM', due, (.+)\)$", LUA["records"], re.MULTILINE)

    assert removed is not None
    assert list(ack_plain.DUE_KINDS) == re.findall(r"'(\w+)' \.\. place", removed[1])
