"""The OpenAPI document, made from the routes and their descriptions, and the page that shows it."""

import base64
import hashlib
import inspect
import re
import sys
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from relay.errors import Forbidden, Malformed, RelayError, StoreUnavailable, TooLarge, Unauthorized
from relay.http.errors import SlowBody
from relay.http.examples import with_examples
from relay.http.operation import JSON, Operation, operation, operation_of
from relay.http.page_headers import page_headers
from relay.http.query import parameters
from relay.http.responses import json_response
from relay.http.schemas.errors import Error

routes = web.RouteTableDef()

_REF = "#/components/schemas/{name}"
_NAME = "[A-Za-z0-9._-]{1,64}"
_IN_PATH: dict[str, tuple[dict[str, Any], str]] = {
    "agent": (
        {"type": "string", "pattern": f"^{_NAME}(~{_NAME})?$", "examples": ["bob"]},
        "An agent of the token's tenant, or `tenant~agent` for an operator.",
    ),
    "address": (
        {"type": "string", "pattern": f"^({_NAME}~)?{_NAME}$", "examples": ["mallory"]},
        "Another agent of the same tenant.",
    ),
    "tenant": (
        {"type": "string", "pattern": f"^{_NAME}$", "examples": ["acme"]},
        "The token's tenant, or any for an operator.",
    ),
    "entry": (
        {"type": "string", "minLength": 1, "maxLength": 64, "examples": ["1800000000123-0"]},
        "The handle that the relay gave the message.",
    ),
    "id": (
        {"type": "string", "minLength": 1, "maxLength": 128, "examples": ["m-1"]},
        "The id that its sender gave the message.",
    ),
    "file": ({"type": "string", "pattern": "^[a-z/.-]+$", "examples": ["style.css"]}, "A file of the dashboard."),
}
_MEANING = {
    101: "A WebSocket; docs/protocol.md has its frames.",
    200: "Done.",
    202: "Accepted: stored, and not ended yet.",
    204: "Nothing more to tell.",
    304: "The caller has it already.",
    503: "Not ready.",
}


def document(app: web.Application) -> dict[str, Any]:
    """OpenAPI 3.1 of every route of the application that describes itself."""
    described = [
        (path, method, handler, known) for path, method, handler in _routes(app) if (known := operation_of(handler))
    ]
    kinds = [kind for *_, known in described for kind in _types(known)]
    schemas, components = msgspec.json.schema_components([*kinds, Error], ref_template=_REF)
    by_type = dict(zip([*map(_key, kinds), _key(Error)], schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for path, method, handler, known in described:
        paths.setdefault(path, {})[method.lower()] = _operation(path, handler, known, by_type)
    return {
        "openapi": "3.1.0",
        "info": {"title": "relay", "version": "1", "description": "A durable store-and-forward relay for agents."},
        "tags": _tags(described),
        "paths": paths,
        "components": {
            "schemas": with_examples(components),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}},
        },
    }


def _routes(app: web.Application) -> list[tuple[str, str, Any]]:
    routes = [
        (route.resource.canonical, route.method, route.handler) for route in app.router.routes() if route.resource
    ]
    return [route for route in routes if route[1] != "HEAD"]


def _family(handler: Any) -> str:
    return str(handler.__module__.rpartition(".")[2])


def _tags(described: list[tuple[str, str, Any, Operation]]) -> list[dict[str, str]]:
    modules = {_family(handler): handler.__module__ for _, _, handler, _ in described}
    return [{"name": name, "description": sys.modules[module].__doc__ or ""} for name, module in modules.items()]


def _several(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _types(known: Operation) -> list[Any]:
    answers = [kind for answer in known.answers.values() for kind in _several(answer)]
    return [kind for kind in (*answers, *_several(known.body)) if kind is not None and not isinstance(kind, str)]


def _key(kind: Any) -> int:
    return id(kind)


def _operation(path: str, handler: Any, known: Operation, by_type: dict[int, Any]) -> dict[str, Any]:
    summary, _, text = (inspect.getdoc(handler) or "").partition("\n")
    operation: dict[str, Any] = {
        "operationId": f"{_family(handler)}_{handler.__name__}",
        "tags": [_family(handler)],
        "summary": summary.rstrip("."),
        "parameters": [*_path_parameters(path), *_query(known), *_headers(known)],
        "responses": _responses(known, by_type),
    }
    if known.scopes is not None:
        operation["security"] = [{"token": []}]
    scopes = f"Scope: {' or '.join(known.scopes)}." if known.scopes else ""
    if description := "\n\n".join(filter(None, (text.strip(), scopes))):
        operation["description"] = description
    if known.body is not None:
        schemas = [by_type[_key(kind)] for kind in _several(known.body)]
        operation["requestBody"] = {"required": True, "content": {JSON: {"schema": _any_of(schemas)}}}
    return operation


def _any_of(schemas: list[Any]) -> Any:
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def _path_parameters(path: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": _IN_PATH[name][0], "description": _IN_PATH[name][1]}
        for name in re.findall(r"\{(\w+)\}", path)
    ]


def _query(known: Operation) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "query",
            "description": schema["description"],
            "example": schema["examples"][0],
            "schema": {key: value for key, value in schema.items() if key not in ("description", "examples")},
        }
        for name, schema in parameters(known.query).items()
    ]


def _headers(known: Operation) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "header", "schema": {"type": "string"}, "description": doc, "example": "3"}
        for name, doc in known.headers
    ]


def _responses(known: Operation, by_type: dict[int, Any]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, answer in known.answers.items():
        media = [kind for kind in _several(answer) if isinstance(kind, str)]
        schemas = [by_type[_key(kind)] for kind in _several(answer) if kind is not None and not isinstance(kind, str)]
        content: dict[str, Any] = {JSON: {"schema": _any_of(schemas)}} if schemas else {}  # first, for generators
        content |= {media_type: {"schema": {"type": "string"}} for media_type in media}
        responses[str(status)] = {"description": _MEANING[status], **({"content": content} if content else {})}
    for status, errors in _errors(known).items():
        codes = ", ".join(f"`{error.code}`" for error in errors)
        response: dict[str, Any] = {"description": codes, "content": {JSON: {"schema": by_type[_key(Error)]}}}
        if status == 429:
            response["headers"] = {"Retry-After": {"schema": {"type": "string"}, "description": "Seconds."}}
        responses.setdefault(str(status), response)
    return responses


def _errors(known: Operation) -> dict[int, list[type[RelayError]]]:
    """Errors by status: those of the operation, and those that all operations of its kind share."""
    errors: list[type[RelayError]] = list(known.errors)
    if known.scopes is not None:
        errors += [Malformed, Unauthorized, Forbidden]
    if known.body is not None:
        errors += [Malformed, SlowBody, TooLarge]
    if known.uses_store:
        errors.append(StoreUnavailable)
    by_status: dict[int, list[type[RelayError]]] = {}
    for error in sorted(set(errors), key=lambda error: (error.status, error.code)):
        by_status.setdefault(error.status, []).append(error)
    return by_status


# -- the document and its reader

_READER = Path(__file__).with_name("reader.html").read_text()


def _hashes(tag: str) -> str:
    """Hashes of a tag's inline text, for the page's content security policy."""
    texts = re.findall(rf"<{tag}>(.*?)</{tag}>", _READER, re.DOTALL)
    return " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in texts)


_HEADERS = page_headers(_hashes("script"), _hashes("style"))


@routes.get("/openapi.json")
@operation(anybody=True, answers={200: dict[str, Any]}, uses_store=False)
async def openapi(request: web.Request) -> web.Response:
    """Get this document."""
    return json_response(document(request.app))


@routes.get("/docs")
@operation(anybody=True, answers={200: "text/html"}, uses_store=False)
async def reader(_: web.Request) -> web.Response:
    """Read this document.

    A page that needs nothing from elsewhere.
    """
    return web.Response(text=_READER, content_type="text/html", headers=_HEADERS)
