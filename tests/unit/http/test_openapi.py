"""The OpenAPI document says what the routes do, of every route, and nothing else."""

import inspect
import re
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from aiohttp import web
from jsonschema_rs import Draft202012Validator, meta

from relay.app import add_routes
from relay.errors import RelayError
from relay.http import openapi
from relay.http.operation import operation_of
from relay.http.schemas.activity import EventShown
from relay.http.schemas.errors import WIRE_ERRORS
from relay.http.schemas.fields import LockToken as LockTokenField
from relay.store.mailbox.leases import LockToken
from relay.store.record.events import COLUMNS

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
    for *_, operation in operations(document):
        assert re.fullmatch(r"[A-Z][\w ,-]{5,50}", operation["summary"])


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


def fields(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every field of every body, and every parameter."""
    for name, schema in document["components"]["schemas"].items():
        for field, described in schema["properties"].items():
            yield f"{name}.{field}", described
    for path, method, operation in operations(document):
        for parameter in operation["parameters"]:
            yield f"{method} {path} {parameter['name']}", parameter


def arrays(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        if schema.get("type") == "array":
            yield schema
        for inner in schema.values():
            yield from arrays(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from arrays(inner)


def test_every_field_says_what_it_means(document: dict[str, Any]) -> None:
    assert [name for name, field in fields(document) if not field.get("description", "").endswith(".")] == []


def test_every_body_says_what_it_is(document: dict[str, Any]) -> None:
    bodies = document["components"]["schemas"].items()

    assert [name for name, schema in bodies if not schema.get("description", "").endswith(".")] == []


def test_every_array_says_what_is_in_it(document: dict[str, Any]) -> None:
    assert [array for array in arrays(document) if not array.get("items")] == []


def test_every_example_fits_its_schema(document: dict[str, Any]) -> None:
    shown = {"components": document["components"]}
    schemas = list(document["components"]["schemas"].items())
    schemas += [(name, field) for name, field in fields(document) if "examples" in field]

    for name, schema in schemas:
        assert schema["examples"], name
        for example in schema["examples"]:
            assert Draft202012Validator({**schema, **shown}).is_valid(example), (name, example)


def test_every_field_has_an_example(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]

    for name, schema in schemas.items():
        assert set(schema["properties"]) == set(schema["examples"][0]), name
    for name, field in fields(document):
        if "in" in field:
            assert "example" in field or field["schema"].get("examples"), name


def test_every_column_of_an_event_can_be_shown() -> None:
    assert set(COLUMNS) - {"tenant"} <= set(EventShown.__struct_encode_fields__)


def test_whoever_needs_a_token_may_be_refused(document: dict[str, Any]) -> None:
    for path, _, operation in operations(document):
        needs_token = "security" in operation
        assert needs_token == path.startswith("/v1/") or path == "/v1/ws"
        if needs_token:
            assert {"400", "401", "403", "503"} <= set(operation["responses"])


def test_a_handler_reads_the_body_and_the_parameters_that_it_describes(app: web.Application) -> None:
    for (path, method), handler in routes(app).items():
        described, source = operation_of(handler), inspect.getsource(handler)
        assert described is not None, (path, method)
        body = re.search(r"await read_body\(request, (\w+)\)", source)
        if body:
            assert described.body.__name__ == body[1], (path, method)
        query = re.search(r"read_query\(request, (\w+)\)", source)
        assert described.query.__name__ == (query[1] if query else "Query"), (path, method)


def test_every_code_of_the_wire_is_an_error_that_is_described(document: dict[str, Any]) -> None:
    described = set(re.findall(r"`(\w+)`", str([one["responses"] for _, _, one in operations(document)])))

    assert {error.code for error in WIRE_ERRORS} <= described
    assert all(issubclass(error, RelayError) for error in WIRE_ERRORS)


def test_the_reader_needs_nothing_from_elsewhere() -> None:
    page = openapi._READER

    assert re.findall(r"https?://", page) == []
    assert re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=", page) == []
    assert "'sha256-" in openapi._HEADERS["Content-Security-Policy"]
    assert "unsafe" not in openapi._HEADERS["Content-Security-Policy"]


def test_an_example_of_the_document(document: dict[str, Any]) -> None:
    lease = document["paths"]["/v1/agents/{agent}/lease"]["post"]

    assert lease["requestBody"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Lease"}
    assert document["components"]["schemas"]["Lease"]["properties"]["max"] == {
        "description": "How many messages at most.",
        "examples": [10],
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


def test_the_lock_token_that_is_shown_is_one() -> None:
    (shown,) = get_args(LockTokenField)[1].examples

    assert str(LockToken.parse(shown, "1800000000123-0")) == shown
