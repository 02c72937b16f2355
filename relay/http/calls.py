"""Calls: what each route asks of its caller and what it answers, said once beside its handler."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from relay.errors import RelayError
from relay.http.parameters import Parameter

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

JSON = "application/json"
EVENTS = "text/event-stream"


@dataclass(frozen=True, slots=True)
class Call:
    """`scopes`: one of them is needed; None: no token is. `answers`: a type or a media type by status."""

    scopes: tuple[str, ...] | None
    answers: dict[int, Any]
    query: tuple[Parameter, ...] = ()
    body: Any = None
    errors: tuple[type[RelayError], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()  # of the request: name and meaning
    uses_store: bool = True


_calls: dict[Any, Call] = {}


def call(
    *scopes: str,
    answers: dict[int, Any],
    query: tuple[Parameter, ...] = (),
    body: Any = None,
    errors: tuple[type[RelayError], ...] = (),
    headers: tuple[tuple[str, str], ...] = (),
    anybody: bool = False,
    uses_store: bool = True,
) -> Callable[[Handler], Handler]:
    """Describes a handler; `door.identity` and the OpenAPI document go by it."""

    def described(handler: Handler) -> Handler:
        _calls[handler] = Call(None if anybody else scopes, answers, query, body, errors, headers, uses_store)
        return handler

    return described


def call_of(handler: Any) -> Call | None:
    return _calls.get(handler)
