"""A2A's errors in JSON-RPC.

RpcError
├── ParseError                 -32700  not JSON
├── InvalidRequest             -32600  not a JSON-RPC 2.0 request
├── MethodNotFound             -32601
├── InvalidParams              -32602
├── InternalError              -32603  what the relay refused; the HTTP status says why
├── TaskNotFound               -32001  unknown, too old, or another caller's
├── TaskNotCancelable          -32002  somebody works on it, or it has ended
├── PushNotSupported           -32003
├── Unsupported                -32004
├── CardNotConfigured          -32007  there is no extended card
└── VersionNotSupported        -32009
"""

from typing import Any, ClassVar

from relay.errors import Malformed, RelayError, TooLarge

DOMAIN = "a2a-protocol.org"


class RpcError(Exception):
    code: ClassVar[int]
    reason: ClassVar[str] = ""  # A2A's own errors have one

    def __init__(self, message: str, status: int = 200, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.status = status  # of HTTP: 200 for whatever the protocol itself says
        self.details = details

    def as_fields(self) -> dict[str, Any]:
        """The error as it goes into a JSON-RPC response."""
        fields: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.reason or self.details:
            fields["data"] = [
                {
                    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                    "reason": self.reason or "RELAY",
                    "domain": DOMAIN,
                    "metadata": {name: str(value) for name, value in self.details.items()},
                }
            ]
        return fields


class ParseError(RpcError):
    code = -32700


class InvalidRequest(RpcError):
    code = -32600


class MethodNotFound(RpcError):
    code = -32601


class InvalidParams(RpcError):
    code = -32602


class InternalError(RpcError):
    code = -32603


class TaskNotFound(RpcError):
    code = -32001
    reason = "TASK_NOT_FOUND"


class TaskNotCancelable(RpcError):
    code = -32002
    reason = "TASK_NOT_CANCELABLE"


class PushNotSupported(RpcError):
    code = -32003
    reason = "PUSH_NOTIFICATION_NOT_SUPPORTED"


class Unsupported(RpcError):
    code = -32004
    reason = "UNSUPPORTED_OPERATION"


class CardNotConfigured(RpcError):
    code = -32007
    reason = "EXTENDED_AGENT_CARD_NOT_CONFIGURED"


class VersionNotSupported(RpcError):
    code = -32009
    reason = "VERSION_NOT_SUPPORTED"


def to_rpc_error(error: RelayError) -> RpcError:
    """A refusal of the relay as a JSON-RPC error, with its usual HTTP status."""
    if isinstance(error, Malformed):
        return InvalidParams(error.message)
    details = {"relay_code": error.code, "retryable": str(error.retryable).lower(), **error.details}
    if isinstance(error, TooLarge):
        return InvalidParams(error.message, error.status, **details)
    return InternalError(error.message, error.status, **details)
