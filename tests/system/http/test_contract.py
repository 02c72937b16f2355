"""The running relay against its own OpenAPI document: whatever is sent, it answers as the document says."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.agents import make_token
from tests.system.conftest import SECRET, Relay

pytestmark = pytest.mark.xdist_group("http contract")

SETTINGS = {"recheck_s": 30}
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]
STREAMS = ("/v1/ws", "/v1/events")  # they go on; their own tests read them
EVERYTHING = "send receive inspect admin metrics"


@pytest.fixture(scope="module")
def schema(relay: Relay) -> Any:
    return schemathesis.openapi.from_url(f"{relay.a.url}/openapi.json").exclude(path=list(STREAMS))


@pytest.fixture(scope="module")
def session(relay: Relay) -> Iterator[requests.Session]:
    """One connection for all calls, and some things for them to find."""
    with requests.Session() as session:
        token = make_token(SECRET, "acme/0", EVERYTHING)
        for name in ("0", "1", "a"):
            url, headers = f"{relay.a.url}/v1/agents/{name}", {"Authorization": f"Bearer {token}"}
            session.put(url, json={"mode": "shared", "card": {}}, headers=headers)
            session.post(f"{url}/messages?wait_s=0", json={"id": "0", "payload": 1}, headers=headers)
        yield session


def without_waiting(case: Case) -> Case:
    """The same call, except that it does not wait; the time of a wait is not what is looked at here."""
    for part in (case.query, case.body):
        if isinstance(part, dict) and isinstance(part.get("wait_s"), int | float | str):
            part["wait_s"] = 0
    return case


def explore(
    schema: Any, session: requests.Session, mode: GenerationMode, examples: int, headers: dict[str, str]
) -> int:
    """Calls every operation with made-up values. Returns how many calls there were."""
    calls = 0
    for result in schema.get_all_operations():
        operation = result.ok()

        @settings(
            max_examples=examples,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def call(case: Case) -> None:
            nonlocal calls
            calls += 1
            answer = without_waiting(case).call(session=session, headers=headers)
            case.validate_response(answer, checks=CHECKS)

        with suppress(Unsatisfiable):  # a call that takes nothing cannot be called wrongly
            call()
    return calls


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_an_admin_with_every_scope_is_answered_as_the_document_says(
    relay: Relay, schema: Any, session: requests.Session, mode: GenerationMode
) -> None:
    headers = {"Authorization": f"Bearer {make_token(SECRET, 'acme/0', EVERYTHING)}"}

    calls = explore(schema, session, mode, 12, headers)

    assert calls > 150
    assert [one.complaints() for one in relay.processes()] == [[], [], []]


def test_a_stranger_is_answered_as_the_document_says(relay: Relay, schema: Any, session: requests.Session) -> None:
    calls = explore(schema, session, GenerationMode.POSITIVE, 4, {})

    assert calls > 60
    assert [one.complaints() for one in relay.processes()] == [[], [], []]
