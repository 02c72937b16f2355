"""OpenTelemetry spans: what the relay did with messages that their senders trace.

Without an endpoint the only cost is a check of `spans`, and the packages are not needed.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import orjson
from msgspec import structs

from relay.errors import ConfigurationError
from relay.protocol.message import MAX_HEADERS_BYTES, Message

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

CONTEXT = ("traceparent", "tracestate")  # the names of W3C Trace Context, in HTTP and in the headers of a message
NS_PER_MS = 1_000_000
SEND_WITHIN_S = 2.0  # a collector that is away must not keep an instance from stopping
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")

spans: "Spans | None" = None  # while there is somebody to send them to


def context_in(headers: Mapping[str, str]) -> dict[str, str]:
    """The trace that a caller is in, if it says so in a form that W3C knows."""
    if not _TRACEPARENT.fullmatch(headers.get("traceparent", "")):
        return {}
    return {name: headers[name] for name in CONTEXT if name in headers}


def in_trace(message: Message, headers: Mapping[str, str]) -> Message:
    """The message, in the trace of the HTTP request that brought it, unless it names one itself."""
    context, own = context_in(headers), message.headers or {}
    if not context or "traceparent" in own:
        return message
    carried = own | context
    return message if len(orjson.dumps(carried)) > MAX_HEADERS_BYTES else structs.replace(message, headers=carried)


class Spans:
    """Records spans as children of the sender's span. Messages without a sampled trace have none."""

    def __init__(self, provider: "TracerProvider") -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer("relay", version("agent-relay"))
        self._propagator = TraceContextTextMapPropagator()

    def record(self, name: str, context: Mapping[str, str], began_ns: int, ended_ns: int, **attributes: Any) -> None:
        parent = self._propagator.extract(context)
        named = {f"messaging.{key.replace('__', '.')}": value for key, value in attributes.items()}
        span = self._tracer.start_span(
            name, parent, attributes={"messaging.system": "relay", **named}, start_time=began_ns
        )
        span.end(max(began_ns, ended_ns))

    def close(self) -> None:
        """Sends what is not sent yet."""
        self._provider.shutdown()


@contextmanager
def traced_to(endpoint: str | None, instance: str) -> Iterator[None]:
    """Sends spans to this collector (OTLP over HTTP) while the context lasts. Raises ConfigurationError."""
    global spans
    if endpoint is None:
        yield
        return
    spans = Spans(_provider(endpoint, instance))
    try:
        yield
    finally:
        spans.close()
        spans = None


def _provider(endpoint: str, instance: str) -> "TracerProvider":
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise ConfigurationError(
            "RELAY_OTLP_ENDPOINT: the packages for it are not installed: pip install 'agent-relay[otel]'"
        ) from None
    resource = Resource.create({"service.name": "relay", "service.instance.id": instance})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(
        BatchSpanProcessor(OTLPSpanExporter(endpoint.rstrip("/") + "/v1/traces", timeout=SEND_WITHIN_S))
    )
    return provider
