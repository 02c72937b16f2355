"""The OpenAPI document says what the routes do, of every route, and nothing else."""

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp import web
from jsonschema_rs import meta

from relay.app import add_routes
from relay.errors import RelayError
from relay.http import answers, openapi
from relay.http.calls import call_of

NOT_OURS = ("/a2a/",)  # speaks A2A, whose own documents describe it


@pytest.fixture(scope="module")
def app() -> web.Application:
    app = web.Application()
    add_routes(app)
    return app


@pytest.fixture(scope="module")
def document(app: web.Application) -> dict[str, Any]:
    return openapi.document(app)


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method.upper(), operation


def routes(app: web.Application) -> dict[tuple[str, str], Any]:
    found = {(route.resource.canonical, route.method): route.handler for route in app.router.routes() if route.resource}
    return {key: handler for key, handler in found.items() if key[1] != "HEAD" and not key[0].startswith(NOT_OURS)}


def test_every_route_is_described_and_every_described_route_exists(
    app: web.Application, document: dict[str, Any]
) -> None:
    assert {(path, method) for path, method, _ in operations(document)} == set(routes(app))


def test_every_description_has_a_summary_and_a_name_of_its_own(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, _, operation in operations(document)]

    assert len(set(names)) == len(names)
    assert all(operation["summary"].endswith(".") for _, _, operation in operations(document))


def test_the_parameters_of_a_path_are_those_in_it(document: dict[str, Any]) -> None:
    for path, _, operation in operations(document):
        described = [one["name"] for one in operation["parameters"] if one["in"] == "path"]
        assert described == re.findall(r"\{(\w+)\}", path)


def test_every_reference_leads_somewhere_and_every_schema_is_one(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]

    references = set(re.findall(r"'#/components/schemas/(\w+)'", str(document)))

    assert references - {"Error"} <= set(schemas)
    for schema in schemas.values():
        meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})


def test_whoever_needs_a_token_may_be_refused(document: dict[str, Any]) -> None:
    for path, _, operation in operations(document):
        needs_token = "security" in operation
        assert needs_token == path.startswith("/v1/") or path == "/v1/ws"
        if needs_token:
            assert {"400", "401", "403", "503"} <= set(operation["responses"])


def test_a_handler_reads_the_body_and_the_parameters_that_it_describes(app: web.Application) -> None:
    for (path, method), handler in routes(app).items():
        described, source = call_of(handler), inspect.getsource(handler)
        assert described is not None, (path, method)
        body = re.search(r"await body\(request, (\w+)\)", source)
        if body:
            assert described.body.__name__ == body[1], (path, method)
        module = inspect.getmodule(handler)
        for name in re.findall(r"\b([A-Z_]+)\.of\(request\)", source):
            assert getattr(module, name) in described.query, (path, method, name)


def test_every_code_of_the_wire_is_an_error_that_is_described(document: dict[str, Any]) -> None:
    described = set(re.findall(r"`(\w+)`", str([one["responses"] for _, _, one in operations(document)])))

    assert {error.code for error in answers.WIRE_ERRORS} <= described
    assert all(issubclass(error, RelayError) for error in answers.WIRE_ERRORS)


def test_the_reader_needs_nothing_from_elsewhere() -> None:
    page = openapi._READER

    assert re.findall(r"https?://", page) == []
    assert re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=", page) == []
    assert "'sha256-" in openapi._POLICY
    assert "unsafe" not in openapi._POLICY


def test_an_example_of_the_document(document: dict[str, Any]) -> None:
    lease = document["paths"]["/v1/agents/{agent}/lease"]["post"]

    assert lease["requestBody"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Lease"}
    assert document["components"]["schemas"]["Lease"]["properties"]["max"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 100,
        "default": 1,
    }
    assert sorted(lease["responses"]) == ["200", "400", "401", "403", "408", "409", "413", "429", "503"]
    (cursor, limit) = document["paths"]["/v1/agents/{agent}/dead"]["get"]["parameters"][1:]
    assert (cursor["name"], limit["schema"]) == (
        "cursor",
        {"type": "integer", "minimum": 1, "maximum": 1_000, "default": 100},
    )
