"""Operations: the requirements and answers of each route, declared once beside its handler."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from relay.errors import RateLimited, RelayError
from relay.http.query import Query
from relay.store.agents.rates import LOOK

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

JSON = "application/json"
EVENTS = "text/event-stream"


@dataclass(frozen=True, slots=True)
class Operation:
    """`scopes`: one of them is needed; None: no token is. `answers`: a type or a media type by status."""

    scopes: tuple[str, ...] | None
    answers: dict[int, Any]
    query: type[Query] = Query
    body: Any = None
    errors: tuple[type[RelayError], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()  # of the request: name and meaning
    uses_store: bool = True
    price: int = 0  # in thousandths of a message, of the caller's rate


_operations: dict[Any, Operation] = {}


def operation(
    *scopes: str,
    answers: dict[int, Any],
    query: type[Query] = Query,
    body: Any = None,
    errors: tuple[type[RelayError], ...] = (),
    headers: tuple[tuple[str, str], ...] = (),
    anybody: bool = False,
    uses_store: bool = True,
    price: int = LOOK,
) -> Callable[[Handler], Handler]:
    """Describes a handler; `auth.identity`, `auth.charge` and the OpenAPI document go by it.

    A price of 0 is for handlers that spend for each thing in the call themselves.
    """

    def described(handler: Handler) -> Handler:
        costs = 0 if anybody else price
        may_fail = errors if anybody else (*errors, RateLimited)
        _operations[handler] = Operation(
            None if anybody else scopes, answers, query, body, may_fail, headers, uses_store, costs
        )
        return handler

    return described


def operation_of(handler: Any) -> Operation | None:
    return _operations.get(handler)
