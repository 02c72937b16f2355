"""A trace goes with its message through every way in, and spans reach a collector."""

import gzip
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from tests.agents import message, until
from tests.callers import Caller
from tests.servers import free_port
from tests.system.conftest import Instance, Room

pytest.importorskip("opentelemetry.sdk.trace", reason="the extra otel is not installed")
received = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")

SPAN = "00f067aa0ba902b7"


def context(digit: str) -> str:
    return f"00-{digit * 32}-{SPAN}-01"


class Collector:
    """Takes OTLP over HTTP, as a real one does."""

    def __init__(self) -> None:
        self.spans: list[Any] = []

    async def take(self, request: web.Request) -> web.Response:
        body = await request.read()
        if request.headers.get("Content-Encoding") == "gzip" and body[:2] == b"\x1f\x8b":
            body = gzip.decompress(body)
        export = received.ExportTraceServiceRequest.FromString(body)
        self.spans += [
            span for resource in export.resource_spans for scope in resource.scope_spans for span in scope.spans
        ]
        return web.Response(body=received.ExportTraceServiceResponse().SerializeToString())

    def names(self, digit: str) -> list[str]:
        return sorted(span.name for span in self.spans if span.trace_id.hex() == digit * 32)


@pytest.fixture
async def collector() -> AsyncIterator[tuple[Collector, str]]:
    collector, port = Collector(), free_port()
    app = web.Application()
    app.add_routes([web.post("/v1/traces", collector.take)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    yield collector, f"http://127.0.0.1:{port}"
    await runner.cleanup()


async def delivered_traces(room: Room, at: Instance, ways: Any) -> dict[str, str]:
    """Sends one message by each way in; the traceparent that came with each."""
    bob = await room.agent("bob", at=at)
    await ways()
    deliveries = await bob.deliveries(3)
    await bob.settle("ack", *deliveries)
    return {one.get("type", "ws"): one["headers"]["traceparent"] for one in deliveries}


async def test_a_trace_goes_with_its_message_and_spans_reach_the_collector(
    room: Room, collector: tuple[Collector, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    spans, endpoint = collector
    instance = room.relay.instance(otlp_endpoint=endpoint, log_level="debug")
    alice = await room.agent("alice", at=instance)
    caller = Caller(instance.url, room.token("alice"))

    async def every_way() -> None:
        await alice.send(message("m-ws", headers={"traceparent": context("a")}))
        http = {"traceparent": context("b")}
        await caller.call("POST", "/v1/agents/bob/messages", {"payload": 1, "type": "http"}, http)
        a2a = {"message": {"messageId": "m-a2a", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}
        a2a["configuration"] = {"returnImmediately": True}
        rpc = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": a2a}
        headers = {"traceparent": context("c"), "A2A-Version": "1.0"}
        answer = await caller.call("POST", f"/a2a/{room.tenant}/bob", rpc, headers)
        assert "error" not in answer.body, answer.body

    carried = await delivered_traces(room, instance, every_way)

    assert carried == {"ws": context("a"), "http": context("b"), "a2a.message": context("c")}
    whole = ["relay accept", "relay hold", "relay wait"]
    await until(lambda: [spans.names(digit) for digit in "abc"] == [whole] * 3, "spans")
    assert {span.parent_span_id.hex() for span in spans.spans} == {SPAN}


async def test_every_line_of_a_life_has_the_id_also_when_another_instance_settles(room: Room) -> None:
    first, second = (room.relay.instance(log_level="debug") for _ in range(2))
    await room.agent("alice", at=first)
    sender = Caller(first.url, room.token("alice"))
    await sender.call("POST", "/v1/agents/bob/messages", {"id": "m-1", "payload": 1})

    puller = Caller(first.url, room.token("bob"))
    (leased,) = (await puller.call("POST", "/v1/agents/bob/lease", {}))["messages"]
    ack = {"lock_token": leased["lock_token"]}
    other = Caller(second.url, room.token("bob"))
    assert (await other.call("POST", f"/v1/agents/bob/entries/{leased['entry']}/ack", ack)).status == 200

    def life(at: Instance) -> list[tuple[str, str]]:
        return [(one["event"], one.get("id", "")) for one in at.lines() if one.get("logger") == "relay.core.lifecycle"]

    await until(lambda: life(second))
    assert life(first) == [("stored", "m-1"), ("taken", "m-1")]
    assert life(second) == [("ack", "m-1")]
