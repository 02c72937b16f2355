"""What a signature covers, as the security page specifies it."""

import json
import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from relay.client import Key
from relay.client.keys.security import signed_part

PAGE = Path(__file__).parents[3] / "docs/security.md"
FIELDS = st.tuples(*[st.text(st.sampled_from("a\0/"), max_size=3)] * 6, st.binary(max_size=3))


def test_the_signature_of_the_page_is_what_the_client_signs() -> None:
    (block,) = re.findall(r"```json\n(.*?)```", PAGE.read_text().partition("### What is signed")[2], re.DOTALL)
    given = json.loads(block)
    names = (given[name] for name in ("from", "to", "id", "type", "thread"))

    key = Key(bytes(range(32)))

    assert key.public == given["key"]
    assert key.sign(signed_part(*names, "", given["payload"].encode())) == given["signature"]


@given(FIELDS, FIELDS)
def test_different_messages_have_different_signed_bytes(one: tuple, other: tuple) -> None:  # type: ignore[type-arg]
    assert (signed_part(*one) == signed_part(*other)) == (one == other)


def test_a_nul_does_not_move_text_from_one_field_to_the_next() -> None:
    one = signed_part("acme/alice", "acme/bob", "m", "job\0t", "", "", b"1")

    assert one != signed_part("acme/alice", "acme/bob", "m", "job", "t\0", "", b"1")


def test_the_tenant_of_the_recipient_is_signed() -> None:
    one = signed_part("acme/alice", "acme/bob", "m", "", "", "", b"1")

    assert one != signed_part("acme/alice", "other/bob", "m", "", "", "", b"1")
