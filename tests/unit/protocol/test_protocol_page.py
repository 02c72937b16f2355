"""docs/protocol.md shows every frame, each as the relay really reads or writes it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from relay import errors
from relay.protocol import frames
from relay.protocol.frames import AnyFrame, parse
from relay.protocol.message import Message

PAGE = (Path(__file__).parents[3] / "docs/protocol.md").read_text()
FROM_CLIENTS = {kind.__struct_config__.tag for kind in AnyFrame.__args__}
FROM_THE_RELAY = {
    *("hello", "welcome", "queue_status", "deliver", "drained", "epoch", "accepted", "refused", "settled", "receipts"),
    *("subscribed", "event", "blocks", "presence", "sync_state", "pong", "error", "closing"),
}


def examples() -> Iterator[dict[str, Any]]:
    for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL):
        text, decoder = block.strip(), json.JSONDecoder()
        while text:
            example, end = decoder.raw_decode(text)
            yield example
            text = text[end:].strip()


def test_every_frame_has_an_example_and_no_example_is_of_a_frame_that_is_not():
    assert {example["op"] for example in examples()} == FROM_CLIENTS | FROM_THE_RELAY


@pytest.mark.parametrize("example", [one for one in examples() if one["op"] in FROM_CLIENTS - FROM_THE_RELAY])
def test_the_relay_reads_what_the_page_says_that_clients_say(example):
    found = parse(json.dumps(example).encode())

    assert set(example) - {"op"} <= {field.name for field in msgspec.structs.fields(found)}


@pytest.mark.parametrize("kind", [*AnyFrame.__args__, Message])
def test_every_field_that_a_client_may_set_is_on_the_page(kind):
    names = [field.name for field in msgspec.structs.fields(kind)]

    assert [name for name in names if not re.search(rf'[`"]{name}[`"]', PAGE)] == []


def test_every_error_is_in_the_table_with_its_status_and_whether_to_try_again():
    rows = re.findall(r"^\| ((?:`\w+` ?)+) \| (\d+|–) \| (yes|no) \|", PAGE, re.MULTILINE)
    shown = {code: (status, again) for codes, status, again in rows for code in re.findall(r"\w+", codes)}
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and hasattr(kind, "code")]
    on_the_wire = {kind.code: kind for kind in kinds if kind is not errors.ConfigurationError}

    assert shown == {
        code: ("–" if code == "unknown_op" else str(kind.status), "yes" if kind.retryable else "no")
        for code, kind in on_the_wire.items()
    }


def test_the_first_frames_of_the_page_name_the_version_that_the_relay_speaks():
    versions = {example["protocol"] for example in examples() if "protocol" in example}

    assert versions == {frames.PROTOCOL}
