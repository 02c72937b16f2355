"""Query parameters: what is not as described is refused, in words that name the parameter."""

from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from relay.errors import Malformed
from relay.http.query import Query, SenderQuery, TenantPage, read_query
from relay.http.routes.agents import RemoveQuery
from relay.http.routes.messages import PeekQuery, SendQuery


def asked(kind: type[Query], text: str) -> Any:
    return read_query(make_mocked_request("GET", f"/?{text}"), kind)


def test_what_is_left_out_has_its_default() -> None:
    page = asked(TenantPage, "")

    assert (page.limit, page.cursor, page.tenant) == (100, None, None)


def test_numbers_flags_and_names_are_read() -> None:
    assert asked(TenantPage, "limit=7&cursor=1-0").limit == 7
    assert asked(SendQuery, "wait_s=1.5").wait_s == 1.5
    assert asked(RemoveQuery, "force=true").force is True
    assert asked(SenderQuery, "from=null").sender == "null"  # a name like any other


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        (TenantPage, "limit=0", "limit: expected a whole number from 1 to 1000"),
        (TenantPage, "limit=1.5", "limit: expected a whole number from 1 to 1000"),
        (TenantPage, "limit=", "limit: expected a whole number from 1 to 1000"),
        (TenantPage, f"tenant={'a' * 65}", "tenant: expected at most 64 characters"),
        (SendQuery, "wait_s=nan", "wait_s: expected a number from 0 to 60"),
        (SendQuery, "wait_s=61", "wait_s: expected a number from 0 to 60"),
        (SendQuery, "wait_s=null", "wait_s: expected a number from 0 to 60"),
        (RemoveQuery, "force=yes", "force: expected true or false"),
        (SenderQuery, f"from={'a' * 130}", "from: expected at most 129 characters"),
    ],
)
def test_a_wrong_value_is_refused_with_what_was_expected(kind: type[Query], text: str, words: str) -> None:
    with pytest.raises(Malformed) as refused:
        asked(kind, text)

    assert refused.value.message == words


def test_a_wrong_word_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(Malformed, match=r"state: expected one of delayed, held, queued"):
        asked(PeekQuery, "state=eaten")
