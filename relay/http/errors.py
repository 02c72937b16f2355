"""Errors become responses here, and nowhere else."""

import asyncio
import logging
import math

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from relay.errors import Malformed, NotFound, RelayError, StoreUnavailable, TooLarge, Unauthorized
from relay.http.app_keys import INSTANCE
from relay.http.measuring import route
from relay.http.operation import Handler
from relay.http.responses import json_response
from relay.telemetry.logs import Seldom

log = logging.getLogger(__name__)
seldom = Seldom(log)


class SlowBody(Malformed):
    status = 408


class MethodNotAllowed(Malformed):
    code = "method_not_allowed"
    status = 405


class InternalError(StoreUnavailable):
    code = "internal"
    status = 500


def error_response(error: RelayError) -> web.Response:
    headers = {}
    if "retry_after_ms" in error.details:
        headers["Retry-After"] = str(max(1, math.ceil(error.details["retry_after_ms"] / 1_000)))
    if isinstance(error, Unauthorized):
        headers["WWW-Authenticate"] = "Bearer"
    return json_response({"error": error.as_fields()}, status=error.status, **headers)


@web.middleware
async def errors_to_responses(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every error becomes a response here, and none says more than its class does."""
    try:
        return await handler(request)
    except RelayError as error:
        if isinstance(error, Unauthorized):
            request.app[INSTANCE].metrics.auth_failures["http"] += 1
            seldom.warning("not_authenticated", remote=request.remote, error=error.message)
        return error_response(error)
    except web.HTTPRequestEntityTooLarge:
        return error_response(TooLarge("the body is too large", max=request.app[INSTANCE].settings.max_frame_bytes))
    except web.HTTPNotFound:
        return error_response(NotFound(f"there is no {request.path[:200]}; /docs lists what there is"))
    except web.HTTPMethodNotAllowed as error:
        return _other_method(request, error)
    except web.HTTPClientError as error:
        response = error_response(Malformed(error.reason))
        response.set_status(error.status)
        return response
    except (web.HTTPException, asyncio.CancelledError):
        raise
    except ConnectionError:
        return error_response(Malformed("the caller has gone"))  # which nobody will read
    except Exception:
        log.exception("request_failed", extra={"method": request.method, "route": route(request)})
        return error_response(InternalError("something went wrong here"))


def _other_method(request: web.Request, error: web.HTTPMethodNotAllowed) -> web.Response:
    """Answers OPTIONS for every resource, and 405 for other methods that it lacks."""
    allowed = ", ".join(sorted({*error.allowed_methods, "OPTIONS"}))
    if request.method == "OPTIONS":
        return web.Response(status=204, headers={"Allow": allowed})
    response = error_response(MethodNotAllowed(f"{request.method[:20]} is not possible here"))
    response.headers["Allow"] = allowed
    return response


def is_worth_logging(record: logging.LogRecord) -> bool:
    """Input that is not HTTP, and callers that leave within a body, are not logged."""
    error = record.exc_info[1] if record.exc_info else None
    is_gone = isinstance(error, RuntimeError) and str(error) == "Connection closed."  # aiohttp has no class for it
    return not isinstance(error, HttpProcessingError) and not is_gone
