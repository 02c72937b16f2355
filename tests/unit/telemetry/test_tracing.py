"""Traces: where a message's context comes from, and the spans that the relay adds to it."""

from collections.abc import Iterator

import pytest

from relay.core import lifecycle
from relay.protocol.message import MAX_HEADERS_BYTES
from relay.store.mailbox.accept import Draft
from relay.store.mailbox.outcomes import AcceptOutcome, Stored
from relay.store.mailbox.take import Taken
from relay.telemetry import tracing
from relay.telemetry.metrics import Metrics
from relay.telemetry.tracing import Spans, context_in, in_trace, traced_to
from tests.builders import BOB, a_message

sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="the extra otel is not installed")
memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
export = pytest.importorskip("opentelemetry.sdk.trace.export")

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED, NOT_SAMPLED = f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-00"


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> Iterator[memory.InMemorySpanExporter]:
    exporter, provider = memory.InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "spans", Spans(provider))
    yield exporter
    lifecycle._followed.clear()


def taken(entry: str = "1800000000000-0", attempt: int = 1, headers: str = SAMPLED) -> Taken:
    payload = b'{"id":"no"}'
    body = b'%b,"headers":{"traceparent":"%b"}' % (payload, headers.encode())
    return Taken(entry, attempt, f"acme\tbob\talice\tm-1\t\t\t0\t{len(payload)}", "", body)


def test_a_life_has_three_spans_below_the_senders(exported: memory.InMemorySpanExporter) -> None:
    answered: list[AcceptOutcome] = []
    sent = a_message(headers={"traceparent": SAMPLED})
    answer = lifecycle.traced(sent, lambda _, outcome, __: answered.append(outcome))
    draft = Draft()

    answer(draft, Stored("1800000000000-0", 1), None)
    lifecycle.note_taken(Metrics(), BOB, [taken(attempt=2)], 1_800_000_000_250)
    lifecycle.note_settled(Metrics(), "ack", BOB, ["1800000000000-0"], {}, [])

    spans = exported.get_finished_spans()
    assert len(answered) == 1
    assert [span.name for span in spans] == ["relay accept", "relay wait", "relay hold"]
    assert {f"{span.context.trace_id:032x}" for span in spans} == {TRACE}
    assert {f"{span.parent.span_id:016x}" for span in spans} == {SPAN}
    assert {span.attributes["messaging.message.id"] for span in spans} == {"m-1"}
    accept, wait, hold = (dict(span.attributes) for span in spans)
    assert accept["messaging.relay.outcome"] == "stored"
    assert wait["messaging.relay.attempt"] == 2
    assert hold["messaging.relay.settled"] == "ack"
    assert spans[1].end_time - spans[1].start_time == 250_000_000


@pytest.mark.parametrize("headers", ["", NOT_SAMPLED, "not a traceparent"])
def test_who_does_not_trace_a_message_gets_no_spans(exported: memory.InMemorySpanExporter, headers: str) -> None:
    lifecycle.note_taken(Metrics(), BOB, [taken(headers=headers)], 1_800_000_000_250)

    assert exported.get_finished_spans() == ()


def test_a_refused_settlement_ends_no_hold(exported: memory.InMemorySpanExporter) -> None:
    lifecycle.note_taken(Metrics(), BOB, [taken()], 1_800_000_000_250)
    lifecycle.note_settled(Metrics(), "ack", BOB, ["1800000000000-0"], {"1800000000000-0": "lock_lost"}, [])

    assert [span.name for span in exported.get_finished_spans()] == ["relay wait"]


@pytest.mark.usefixtures("exported")
def test_only_so_many_messages_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "MOST_FOLLOWED", 2)

    lifecycle.note_taken(Metrics(), BOB, [taken(f"180000000000{n}-0") for n in range(5)], 1_800_000_000_250)

    assert [entry for _, entry in lifecycle._followed] == ["1800000000003-0", "1800000000004-0"]


@pytest.mark.parametrize(
    "value",
    [
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01\n",
        "",
    ],
)
def test_what_w3c_does_not_know_is_no_context(value: str) -> None:
    assert context_in({"traceparent": value}) == {}


def test_the_trace_of_a_request_goes_with_its_message_unless_that_has_its_own() -> None:
    http = {"traceparent": SAMPLED, "tracestate": "vendor=1", "Accept": "*/*"}
    own = f"00-{'1' * 32}-{'2' * 16}-01"

    plain = in_trace(a_message(), http)
    mixed = in_trace(a_message(headers={"a": "b"}), http)
    traced_itself = in_trace(a_message(headers={"traceparent": own}), http)
    full = in_trace(a_message(headers={"a": "b" * (MAX_HEADERS_BYTES - 20)}), http)

    assert plain.headers == {"traceparent": SAMPLED, "tracestate": "vendor=1"}
    assert mixed.headers == {"a": "b", "traceparent": SAMPLED, "tracestate": "vendor=1"}
    assert traced_itself.headers == {"traceparent": own}
    assert full.headers is not None
    assert "traceparent" not in full.headers


def test_without_an_endpoint_there_are_no_spans() -> None:
    with traced_to(None, "i-1"):
        assert tracing.spans is None


@pytest.mark.usefixtures("exported")
def test_a_message_without_a_trace_is_answered_as_it_is() -> None:
    def answer(*_: object) -> None: ...

    assert lifecycle.traced(a_message(), answer) is answer
    assert lifecycle.traced(a_message(headers={"a": "b"}), answer) is answer
