"""The payload is found in a stored body by its size, whatever is in and behind it."""

import json
from typing import Any

import msgspec
import pytest

from relay.core.session.deliver_frame import delivery
from relay.protocol.message import Message
from relay.settings import Settings
from relay.store.keys import Keys
from relay.store.record.body import payload_in, without_payload
from relay.store.record.draft import Draft, Drafting
from relay.store.record.taken import Taken
from tests.builders import ALICE, BOB, NOON_MS, HandClock

PAYLOADS = ['"x"', '{"payload":1}', '",\\"payload\\":"', '"id"', '"é"', "[" * 5_000 + "]" * 5_000]
NAMES = ["plain", "named so", "quoted so", "as a field of a delivery", "not ASCII", "deep"]
IDS = ["m-1", ',"payload":', '\\",\\"payload\\":7', '"', "\\"]
HEADERS = {"payload": ',"payload":'}


def a_draft(id: str, payload: str, **fields: Any) -> Draft:
    message = Message(id=id, to=BOB, payload=msgspec.Raw(payload.encode()), **fields)
    return Drafting(Keys(1, 1_000, 1_000), Settings(), HandClock()).draft(ALICE, message, lambda *_: None)


def taken(draft: Draft, body: bytes) -> Taken:
    return Taken("1-0", 1, f"{draft.key}\t{draft.rest}", f"7\t{draft.opts}", body)


@pytest.mark.parametrize("payload", PAYLOADS, ids=NAMES)
def test_the_payload_is_cut_out_as_it_was_sent(payload: str) -> None:
    draft = a_draft("m-1", payload, headers=HEADERS, type="t")

    assert payload_in(draft.body, draft.size) == payload.encode()
    assert json.loads(without_payload(draft.body, draft.size)) == {"type": "t", "headers": HEADERS}


@pytest.mark.parametrize("payload", PAYLOADS, ids=NAMES)
def test_a_body_of_a_message_without_options_is_its_payload(payload: str) -> None:
    draft = a_draft("m-1", payload)

    assert draft.body == payload.encode()
    assert without_payload(draft.body, draft.size) == b"{}"


@pytest.mark.parametrize("id", IDS)
def test_a_delivery_has_what_head_opts_and_body_say(id: str) -> None:
    draft = a_draft(id, '{"n":1}', thread="a\tb", priority=3, request=True, ttl_s=60)

    row = taken(draft, draft.body)
    row.was_stored = True

    assert json.loads(delivery(row, f"1.2.1-0.{id}")) == {
        "entry": "1-0",
        "id": id,
        "from": ALICE,
        "seq": 7,
        "priority": 3,
        "sent_at_ms": NOON_MS,
        "expires_at_ms": NOON_MS + 60_000,
        "attempt": 1,
        "was_stored": True,
        "request": True,
        "lock_token": f"1.2.1-0.{id}",
        "payload": {"n": 1},
        "thread": "a\tb",
    }
