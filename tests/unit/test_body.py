"""The payload is found in a stored body by its place, whatever stands before and in it."""

import json

import msgspec
import pytest

from relay.protocol.message import Message
from relay.settings import Settings
from relay.store.body import payload_in, without_payload
from relay.store.draft import Drafting
from relay.store.head import Head
from relay.store.keys import Keys
from tests.builders import ALICE, BOB, HandClock

PAYLOADS = ['"x"', '{"payload":1}', '",\\"payload\\":"', "[" * 5_000 + "]" * 5_000]
IDS = ["m-1", ',"payload":', '\\",\\"payload\\":7', '"', "\\"]


@pytest.mark.parametrize("payload", PAYLOADS, ids=["plain", "named so", "quoted so", "deep"])
@pytest.mark.parametrize("id", IDS)
def test_the_payload_is_cut_out_as_it_was_sent(id: str, payload: str) -> None:
    message = Message(id=id, to=BOB, payload=msgspec.Raw(payload.encode()), headers={"payload": ',"payload":'})
    draft = Drafting(Keys(1, 1_000, 1_000), Settings(), HandClock()).draft(ALICE, message, lambda *_: None)
    size = Head.parse(f"{draft.key}\t{draft.rest}").bytes

    rest = json.loads(without_payload(draft.body, size))

    assert payload_in(draft.body, size) == payload.encode()
    assert (rest["id"], rest["from"], rest["headers"], "payload" in rest) == (id, ALICE, message.headers, False)
