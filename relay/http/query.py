"""Query parameters: one Struct per operation, used for checks and for the OpenAPI document."""

from functools import cache
from typing import Annotated, Any, TypeVar

import msgspec
from aiohttp import web
from msgspec import Meta, Struct, field

from relay.errors import Malformed
from relay.http.schemas.fields import doc

MAX_PAGE = 1_000
MAX_ANSWER_BYTES = 1_048_576  # about how large a page becomes; a shorter one has a cursor all the same

Tenant = Annotated[str, Meta(max_length=64), doc("Another tenant than the token's; for an operator.", "acme")]
Cursor = Annotated[
    str, Meta(max_length=300), doc("Where to go on: the `cursor` of the page before.", "1800000000123-0")
]


class Query(Struct, kw_only=True):
    """No parameters."""


class TenantQuery(Query):
    tenant: Tenant | None = None


class SenderQuery(Query):
    sender: (
        Annotated[str, Meta(max_length=129), doc("Another sender than the token's own; for an admin.", "alice")] | None
    ) = field(name="from", default=None)


class Page(Query):
    cursor: Cursor | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE), doc("How many at most on one page.", 100)] = 100


class TenantPage(Page):
    tenant: Tenant | None = None


Asked = TypeVar("Asked", bound=Query)


def read_query(request: web.Request, kind: type[Asked]) -> Asked:
    """The parameters of a request. Raises Malformed."""
    try:
        return msgspec.convert(dict(request.query), kind, strict=False)
    except msgspec.ValidationError as error:
        name = str(error).rpartition("`$.")[2].rstrip("`")
        raise Malformed(f"{name}: expected {_expected(parameters(kind)[name])}") from None


@cache
def parameters(kind: type[Query]) -> dict[str, dict[str, Any]]:
    """The JSON schema of each parameter. One that is left out has no value, and none can be null."""
    (_, components) = msgspec.json.schema_components([kind])
    properties = components[kind.__name__]["properties"]
    return {name: _without_null(schema) for name, schema in properties.items()}


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    rest = {key: value for key, value in schema.items() if key != "anyOf" and (key, value) != ("default", None)}
    for choice in schema.get("anyOf", ()):
        if choice != {"type": "null"}:
            rest |= choice
    return rest


def _expected(schema: dict[str, Any]) -> str:
    match schema:
        case {"enum": words}:
            return f"one of {', '.join(sorted(words))}"
        case {"type": "boolean"}:
            return "true or false"
        case {"type": "integer", "minimum": low, "maximum": high}:
            return f"a whole number from {low} to {high}"
        case {"type": "number", "minimum": low, "maximum": high}:
            return f"a number from {low:g} to {high:g}"
        case {"maxLength": longest}:
            return f"at most {longest} characters"
    return "another value"
