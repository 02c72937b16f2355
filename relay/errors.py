"""Every error that a user can meet, with its wire code, HTTP status and whether trying again can help.

RelayError
├── Malformed            400  not JSON, wrong type, missing field, bad address
├── UnknownOp            400  a frame whose op the relay does not know
├── Unauthorized         401  no token, or a bad one
├── Forbidden            403  wrong tenant, agent or scope
├── NotFound             404  no such message, entry, task
├── UnknownAgent         404  a closed tenant has no such agent
├── LockLost             409  somebody else holds the entry now
├── Busy                 409  an exclusive session holds the mailbox
├── TooLarge             413  the payload is over max_payload_bytes
├── QueueFull            429  the mailbox is at its cap
├── RateLimited          429  the sender's token bucket is empty
├── StoreUnavailable     503  Redis is down, out of memory or failing over
│   ├── StoreRefused     503  it is there, and does not allow this call
│   └── NotReplicated    503  it has done this, and a failover may undo it
└── ConfigurationError     –  the relay cannot start like this
"""

import errno
import os
from typing import Any, ClassVar


class RelayError(Exception):
    """Carries what a client is told: `code`, a message, and details that belong to the code."""

    code: ClassVar[str]
    status: ClassVar[int]
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def as_fields(self) -> dict[str, Any]:
        """The error as it goes into a frame or a response body."""
        return {"code": self.code, "message": self.message, "retryable": self.retryable, **self.details}


class Malformed(RelayError):
    code = "malformed"
    status = 400


class UnknownOp(RelayError):
    code = "unknown_op"
    status = 400


class Unauthorized(RelayError):
    code = "unauthorized"
    status = 401


class Forbidden(RelayError):
    code = "forbidden"
    status = 403


class NotFound(RelayError):
    code = "not_found"
    status = 404


class UnknownAgent(RelayError):
    code = "unknown_agent"
    status = 404


class LockLost(RelayError):
    code = "lock_lost"
    status = 409


class Busy(RelayError):
    code = "busy"
    status = 409
    retryable = True


class TooLarge(RelayError):
    code = "too_large"
    status = 413


class QueueFull(RelayError):
    code = "queue_full"
    status = 429
    retryable = True


class RateLimited(RelayError):
    code = "rate_limited"
    status = 429
    retryable = True


class StoreUnavailable(RelayError):
    code = "store_unavailable"
    status = 503
    retryable = True


class StoreRefused(StoreUnavailable):
    """The server answered the call with an error of its own."""


class NotReplicated(StoreUnavailable):
    """The master did it, and not enough replicas have it: it cannot be promised. `outcome` is what the master said."""

    def __init__(self, outcome: Any) -> None:
        super().__init__("it has not reached the replicas; the same id again is safe")
        self.outcome = outcome


class ConfigurationError(RelayError):
    code = "configuration"
    status = 500


def cannot_listen(host: str, port: int, error: OSError) -> ConfigurationError:
    """Why a server cannot listen there, and what to change."""
    known = error.errno if error.errno in errno.errorcode else None  # that of a name without an address is no errno
    reason = os.strerror(known) if known else error.strerror
    change = "--port" if known in (errno.EADDRINUSE, errno.EACCES) else "--host"
    return ConfigurationError(f"cannot listen on {host}:{port}: {reason}; try another {change}")
