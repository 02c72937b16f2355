"""Who may come in, what is not there, and how an error looks."""

import asyncio
import base64
import json
import socket
from urllib.parse import urlsplit

import pytest

from tests.agents import make_token
from tests.callers import Caller, admin, caller, operator
from tests.system.conftest import SECRET, Room

pytestmark = pytest.mark.xdist_group("common")

# method, path, body, the scopes of which one is needed
CALLS = [
    ("POST", "/v1/agents/me/messages", {"payload": 1}, {"send"}),
    ("GET", "/v1/tasks/t", None, {"send"}),
    ("GET", "/v1/agents/me/messages/m", None, {"send", "inspect"}),
    ("DELETE", "/v1/agents/me/messages/m", None, {"send"}),
    ("POST", "/v1/agents/me/lease", {}, {"receive"}),
    *(("POST", f"/v1/agents/me/entries/1-1/{how}", {"lock_token": "x"}, {"receive"}) for how in ("ack", "nack")),
    *(("POST", f"/v1/agents/me/entries/1-1/{how}", {"lock_token": "x"}, {"receive"}) for how in ("release", "touch")),
    ("POST", "/v1/agents/me/entries/1-1/reply", {"lock_token": "x", "payload": 1}, {"receive"}),
    ("POST", "/v1/agents/me/settle", {}, {"receive"}),
    ("GET", "/v1/agents", None, {"send", "receive", "inspect"}),
    ("GET", "/v1/agents/me", None, {"send", "receive", "inspect"}),
    ("PUT", "/v1/agents/me", {}, {"receive"}),
    ("DELETE", "/v1/agents/me", None, {"receive"}),
    ("GET", "/v1/agents/me/messages", None, {"receive", "inspect"}),
    ("GET", "/v1/agents/me/dead", None, {"receive", "inspect"}),
    ("POST", "/v1/agents/me/dead/revive", {"all": True}, {"receive"}),
    ("DELETE", "/v1/agents/me/dead/1-1", None, {"receive"}),
    ("GET", "/v1/agents/me/blocks", None, {"receive"}),
    ("GET", "/v1/agents/me/blocks/bob", None, {"receive"}),
    ("PUT", "/v1/agents/me/blocks/bob", None, {"receive"}),
    ("DELETE", "/v1/agents/me/blocks/bob", None, {"receive"}),
    ("GET", "/v1/activity", None, {"inspect"}),
    ("GET", "/v1/anomalies", None, {"inspect"}),
    ("GET", "/v1/stats", None, {"inspect", "metrics"}),
    ("GET", "/v1/instances", None, {"metrics"}),
]


@pytest.mark.parametrize(("method", "path", "body", "scopes"), CALLS)
async def test_each_call_needs_a_token_with_its_scope(
    room: Room, method: str, path: str, body: object, scopes: set[str]
) -> None:
    without = await Caller(room.a.url).call(method, path, body)
    by_scope = {
        scope: (await caller(room, "me", scope).call(method, path, body)).status
        for scope in ("send", "receive", "inspect", "metrics")
    }

    assert without.said == (401, "unauthorized")
    assert without.headers["WWW-Authenticate"] == "Bearer"
    assert {scope for scope, status in by_scope.items() if status != 403} == scopes
    assert max(by_scope.values()) < 500


def unsigned() -> str:
    parts = ({"alg": "none"}, {"sub": "me", "tenant": "acme", "exp": 9_999_999_999})
    return ".".join(base64.urlsafe_b64encode(json.dumps(one).encode()).decode().rstrip("=") for one in parts) + "."


@pytest.mark.parametrize(
    "token",
    [
        *("", "x", "a.b.c", unsigned(), "é", "x" * 7_000),
        make_token("another secret that is long enough", "acme/me"),
        make_token(SECRET, "acme/me", exp=None),
        make_token(SECRET, "acme/me", ttl_s=-60),
        make_token(SECRET, "acme/me", ttl_s=2 * 86_400),
        make_token(SECRET, "acme/me", tenant=None),
        make_token(SECRET, "acme/me", sub="other/me"),
        make_token(SECRET, "acme/me", sub=7),
        make_token(SECRET, "acme/me", scope=["send"]),
    ],
)
async def test_a_bad_token_is_401_and_no_part_of_it_is_told(room: Room, token: str) -> None:
    answer = await Caller(room.a.url).call("GET", "/v1/agents", headers={"Authorization": f"Bearer {token}"})

    assert answer.said == (401, "unauthorized")
    assert len(token) < 5 or token not in answer.text


async def test_other_ways_to_authenticate_are_401(room: Room) -> None:
    for value in ("Basic YTpi", "Bearer", "bearer ", room.token("me")):
        answer = await Caller(room.a.url).call("GET", "/v1/agents", headers={"Authorization": value})
        assert answer.said == (401, "unauthorized")


async def test_a_message_to_another_tenant_is_forbidden_also_for_an_operator(room: Room) -> None:
    agent = await caller(room, "alice").post("/v1/agents/other~bob/messages", {"payload": 1})
    root = await operator(room, "root").post("/v1/agents/other~bob/messages", {"payload": 1})
    own = await caller(room, "alice").post(f"/v1/agents/{room.tenant}~bob/messages", {"payload": 1})

    assert agent.said == root.said == (403, "forbidden")
    assert own.status == 202


@pytest.mark.parametrize("agent", ["a%20b", "a%2Fb", "~b", "a~", "a~b~c", "x" * 65, "%C3%A4"])
async def test_a_name_that_no_agent_can_have_is_malformed(room: Room, agent: str) -> None:
    answer = await admin(room).post(f"/v1/agents/{agent}/messages", {"payload": 1})

    assert answer.said == (400, "malformed")


async def test_what_is_not_there_is_404_and_other_methods_are_405_with_what_is_possible(room: Room) -> None:
    alice = caller(room, "alice")

    nowhere = [await alice.get(path) for path in ("/nowhere", "/v1", "/v1/agents/", "/v2/agents")]
    other = await alice.call("PATCH", "/v1/agents")
    options = await Caller(room.a.url).call("OPTIONS", "/v1/agents/bob")
    head = await alice.call("HEAD", "/v1/agents")

    assert [one.said for one in nowhere] == [(404, "not_found")] * 4
    assert other.said == (405, "method_not_allowed")
    assert other.headers["Allow"] == "GET, HEAD, OPTIONS"
    assert (options.status, options.headers["Allow"], options.text) == (204, "DELETE, GET, HEAD, OPTIONS, PUT", "")
    assert (head.status, head.text) == (200, "")
    assert int(head.headers["Content-Length"]) > 0


async def test_a_stream_has_no_head(room: Room) -> None:
    events = await caller(room, "alice", "inspect").call("HEAD", "/v1/events")
    task = await caller(room, "alice").call("HEAD", "/v1/tasks/t", headers={"Accept": "text/event-stream"})

    assert (events.status, task.status) == (405, 404)


async def test_every_answer_says_little_of_what_made_it(room: Room) -> None:
    answer = await Caller(room.a.url).get("/healthz")

    assert answer.headers["Server"] == "relay"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "Access-Control-Allow-Origin" not in answer.headers


async def test_health_readiness_and_metrics_need_no_token_here(room: Room) -> None:
    anybody = Caller(room.a.url)

    alive, ready, metrics = [await anybody.get(path) for path in ("/healthz", "/readyz", "/metrics")]
    with_token = [await caller(room, "me", scope).get("/metrics") for scope in ("metrics", "operator", "admin", "send")]

    assert (alive.status, alive.body) == (200, {"status": "alive"})
    assert (ready.status, ready["status"]) == (200, "ready")
    assert "relay_accepted_total" in metrics.text
    assert [one.status for one in with_token] == [200, 200, 403, 403]


async def test_the_fixed_token_opens_the_metrics_and_nothing_else(room: Room) -> None:
    instance = room.relay.instance(metrics_token="a fixed token")
    prometheus, anybody = Caller(instance.url, "a fixed token"), Caller(instance.url)

    answers = [await prometheus.get(path) for path in ("/metrics", "/v1/stats")]

    assert [one.status for one in answers] == [200, 401]
    assert (await anybody.get("/metrics")).status == 401, "where there is one, nobody does without"


FORWARDED = ["Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Proto", "X-Real-IP", "CF-Connecting-IP"]


@pytest.mark.parametrize("header", FORWARDED)
async def test_the_metrics_are_closed_to_whom_a_proxy_on_this_machine_forwards(room: Room, header: str) -> None:
    answer = await Caller(room.a.url).call("GET", "/metrics", headers={header: "203.0.113.7", "Host": "localhost"})

    assert answer.said == (401, "unauthorized")


async def test_the_metrics_are_closed_to_a_proxy_that_adds_no_header_and_speaks_http_1_0(room: Room) -> None:
    """As nginx does unless it is told otherwise."""
    answer = await raw(room, b"GET /metrics HTTP/1.0\r\nHost: 127.0.0.1:8080\r\nConnection: close\r\n\r\n")

    assert answer.split(b" ", 2)[1] == b"401"


async def raw(room: Room, text: bytes) -> bytes:
    """What the relay says to these bytes before it closes."""
    host = urlsplit(room.a.url)
    reader, writer = await asyncio.open_connection(host.hostname, host.port)
    writer.write(text)
    try:
        return await asyncio.wait_for(reader.read(), 10)
    finally:
        writer.close()


@pytest.mark.parametrize(
    "text",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 20_000 + b"\r\n\r\n",
        b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"NONSENSE\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    ],
)
async def test_what_is_not_http_or_too_long_is_400_and_not_worth_a_trace(room: Room, text: bytes) -> None:
    answer = await raw(room, text)

    assert answer.startswith(b"HTTP/1.") and b" 400 " in answer.split(b"\r\n")[0]  # noqa: PT018
    assert b"Traceback" not in answer


async def test_a_caller_that_stops_in_the_middle_of_a_body_does_no_harm(room: Room) -> None:
    host = urlsplit(room.a.url)
    with socket.create_connection((host.hostname or "", host.port or 0)) as one:
        one.sendall(
            b"POST /v1/agents/bob/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n"
            b"Authorization: Bearer %b\r\n\r\n{" % room.token("alice").encode()
        )

    assert (await caller(room, "alice").send("bob", "m-1"))["seq"] == 1
