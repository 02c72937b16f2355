"""Every command, with messages, agents, a store and a relay that are made to drive the terminal of who looks."""

import json
import os
import pty
import socketserver
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click
import pytest
import redis

from relay.cli.main import main
from relay.cli.visible import visible
from tests.agents import make_token
from tests.up import WITHIN_S, Up, environ, up

pytestmark = pytest.mark.xdist_group("cli")

CLEARS = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x1b[8m\x9b2J\r\x08\x7f\u202eevil\u2066\u200f\u200b\u2028\U000e0041\nfake: line"
LINKS = "[link=http://evil]x[/link]"
HOSTILE = CLEARS + LINKS
ODD = ["1e999", "9" * 5_000, "[" * 900 + "]" * 900, json.dumps(HOSTILE), json.dumps(HOSTILE, ensure_ascii=False)]

# What each command is given, where it prints what others wrote.
READS = {
    "agents": [],
    "ask": ["mallory", "1", "--timeout", "30s"],
    "dead": ["bob"],
    "doctor": [],
    "listen": ["--as", "bob", "--count", str(len(ODD)), "--no-ack", "--timeout", "20s"],
    "pause": ["dora", "--reason", HOSTILE],
    "peek": ["bob"],
    "reply": ["REQUEST", "2", "--as", "carol"],
    "resume": ["dora"],
    "send": ["erin", HOSTILE, "--type", HOSTILE],
    "shard": ["bob"],
    "top": ["--count", "1"],
    "trace": ["dead-1", "odd-0"],
    "why": ["bob"],
}
HERE = {"doctor", "shard"}  # these look into the store and need no relay
QUIET = {"pause", "reply", "resume", "send", "shard"}  # these print none of it on a terminal
# These print what this machine, its own measurements or tests of its pipeline say.
OTHERS = {"bench", "keygen", "serve", "token", "torture", "up", "workers"} | {
    f"spark {job}" for job in ("archive", "audit", "dump", "replay", "report")
}


def leaves(command: click.Command, name: str = "") -> Iterator[str]:
    """The names of all commands."""
    if isinstance(command, click.Group):
        for word, inner in command.commands.items():
            yield from leaves(inner, f"{name} {word}".strip())
    else:
        yield name


def test_no_command_is_forgotten_here() -> None:
    assert set(leaves(main)) == READS.keys() | OTHERS


class House:
    """A relay whose agent mallory has had her way."""

    def __init__(self, running: Up) -> None:
        self.folder, self.url = running.folder, running.urls[0]
        self._secret = (running.folder / "token-secret").read_text().strip()
        self.store = redis.Redis(unix_socket_path=str(running.folder / "redis.sock"))
        self.requests = 0

    def typed(self, command: str) -> list[str]:
        words = [word.replace("REQUEST", f"request-{self.requests}") for word in READS[command]]
        return [command, *words] if command in HERE else [command, *words, "--url", self.url]

    def call(self, who: str, path: str, body: Any, method: str = "POST") -> Any:
        text = body if isinstance(body, str) else json.dumps(body)
        token = make_token(self._secret, f"demo/{who}", scope="send receive inspect admin")
        headers = {"Authorization": f"Bearer {token}"}
        request = urllib.request.Request(self.url + path, text.encode(), headers, method=method)
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)

    def send(self, to: str, payload: str, **fields: Any) -> None:
        named = json.dumps({"type": HOSTILE, "thread": HOSTILE, "headers": {"h": HOSTILE}} | fields)
        self.call("mallory", f"/v1/agents/{to}/messages", f'{named[:-1]},"payload":{payload}}}')

    def settle(self, who: str, how: str, wait_s: float = 0, **fields: Any) -> None:
        body = {"max": 1, "consumer": "w1", "wait_s": wait_s}
        (leased,) = self.call(who, f"/v1/agents/{who}/lease", body)["messages"]
        path = f"/v1/agents/{who}/entries/{leased['entry']}/{how}"
        self.call(who, path, {"lock_token": leased["lock_token"], **fields})


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with up(tmp_path_factory.mktemp("hostile") / "data", "--instances", "1") as running:
        house = House(running)
        house.send("bob", "1", id="dead-1")
        house.settle("bob", "nack", retry=False, reason=HOSTILE)
        for n, payload in enumerate(ODD):
            house.send("bob", payload, id=f"odd-{n}")
        wrong = {"kind": "stale", "severity": "warning", "subject": "x", "text": HOSTILE, "evidence": {}}
        now_ms = int(house.store.time()[0] * 1_000)
        anomaly = json.dumps(wrong | {"agent": "demo/bob", "first_ms": now_ms, "last_ms": now_ms + 3_600_000})
        house.store.hset("relay:anomalies:demo", "stale x", anomaly)
        house.store.hset("relay:workers", "observer", f"{now_ms + 3_600_000}\t{HOSTILE}")
        house.store.hset("relay:{s00}:ids", f"demo\tbob\tmallory\t{HOSTILE}", "1-1")
        house.store.zadd("relay:{s00}:roster", {f"demo/{HOSTILE}": 0})
        yield house


@contextmanager
def meanwhile(house: House, command: str) -> Iterator[None]:
    """What else must be so for a command to have something to say."""
    match command:
        case "ask":
            answer = {"wait_s": 20, "payload": HOSTILE}
            answering = threading.Thread(target=house.settle, args=("mallory", "reply"), kwargs=answer)
            answering.start()
            yield
            answering.join()
        case "reply":
            house.requests += 1
            house.send("carol", "1", id=f"request-{house.requests}", request=True)
            yield
        case "why":
            house.call("mallory", "/v1/agents/bob/pause", {"reason": HOSTILE}, "PUT")
            yield
            house.call("mallory", "/v1/agents/bob/pause", "", "DELETE")
        case _:
            yield


def at_terminal(words: list[str], **settings: str) -> str:
    """What is printed on a terminal that has no colours: so no escape is the program's own."""
    ours, theirs = pty.openpty()
    environment = environ(**settings) | {"TERM": "dumb", "COLUMNS": "200"}
    command = [sys.executable, "-m", "relay.cli", *words]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    seen = b""
    with suppress(OSError):  # which is how the end of a terminal looks
        while data := os.read(ours, 65_536):
            seen += data
    process.wait(WITHIN_S)
    os.close(ours)
    return seen.decode().replace("\r\n", "\n")


def in_pipe(words: list[str], **settings: str) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "relay.cli", *words],
        capture_output=True,
        env=environ(**settings),
        timeout=WITHIN_S,
        check=False,
    )
    return done.stdout.decode(), done.stderr.decode()


def assert_text(shown: str) -> None:
    assert [line for line in shown.split("\n") if visible(line) != line] == []
    assert "fake: line" not in [line.strip() for line in shown.split("\n")]
    assert "Traceback" not in shown


@pytest.mark.parametrize("command", READS)
def test_no_message_drives_the_terminal(command: str, house: House) -> None:
    place = {"data_dir": str(house.folder), "shards": "4"}

    with meanwhile(house, command):
        shown = at_terminal(house.typed(command), **place)
    with meanwhile(house, command):
        piped, told = in_pipe(house.typed(command), **place)

    assert_text(shown + told + piped)
    assert [json.loads(line, parse_int=str) for line in piped.splitlines()], told
    assert ("\\u001b" in shown) == (command not in QUIET)


# -- a relay that is none


class Liar(socketserver.StreamRequestHandler):
    """Refuses everything, in hostile words."""

    def handle(self) -> None:
        while self.rfile.readline().strip():
            pass
        text = json.dumps({"error": {"code": "forbidden", "message": HOSTILE}}).encode()
        self.wfile.write(
            b"HTTP/1.1 403 \x1b[2J\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text)
        )


class Liars(socketserver.ThreadingTCPServer):
    daemon_threads = True


@pytest.fixture(scope="module")
def liar() -> Iterator[str]:
    with Liars(("127.0.0.1", 0), Liar) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.parametrize("command", sorted(READS.keys() - HERE))
def test_no_relay_drives_the_terminal(command: str, liar: str, tmp_path: Path) -> None:
    words = [word.replace("carol", "bob").replace("20s", "2s") for word in READS[command]]
    token = make_token("x" * 32, "demo/bob")

    shown = at_terminal([command, *words, "--url", liar, "--token", token], data_dir=str(tmp_path))

    assert_text(shown)
    assert "Error: " in shown
