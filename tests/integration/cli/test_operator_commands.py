"""An operator's commands as real processes on a whole relay: what they print in a pipe, and how they end."""

import json
import os
import pty
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from tests.integration.cli.test_cli import relay
from tests.up import WITHIN_S, Up, environ, up

pytestmark = pytest.mark.xdist_group("cli")


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("operated") / "data") as running:
        yield running


class Operator:
    """Runs commands against a running relay."""

    def __init__(self, house: Up) -> None:
        self._place = {"data_dir": str(house.folder), "shards": "4"}
        self._urls = ["--url", house.urls[0]]

    def run(self, *words: str, given: str = "", has_url: bool = True) -> tuple[int, list[dict[str, Any]]]:
        """Its exit code and its lines."""
        done = relay(*words, *(self._urls if has_url else []), given=given, **self._place)
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]

    def token(self, agent: str, *more: str) -> str:
        return relay("token", "--agent", f"demo/{agent}", *more, **self._place).stdout.strip()

    def fail_all(self, agent: str, token: str) -> None:
        """Leases what the agent has, and says that it can never be done."""
        leased = self._post(f"/v1/agents/{agent}/lease", token, {"max": 10})["messages"]
        assert leased
        for one in leased:
            body = {"lock_token": one["lock_token"], "retry": False, "reason": "cannot parse"}
            self._post(f"/v1/agents/{agent}/entries/{one['entry']}/nack", token, body)

    def _post(self, path: str, token: str, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(
            self._urls[1] + path, json.dumps(body).encode(), {"Authorization": f"Bearer {token}"}
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)

    def at_terminal(self, typed: str, *words: str) -> str:
        """What a person sees who types this."""
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "relay.cli", *words, *self._urls],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environ(**self._place) | {"TERM": "xterm", "COLUMNS": "120"},
        )
        os.close(theirs)
        os.write(ours, typed.encode())
        seen = b""
        with suppress(OSError):  # which is how the end of a terminal looks
            while data := os.read(ours, 4_096):
                seen += data
        process.wait(WITHIN_S)
        os.close(ours)
        return seen.decode()

    def error(self, *words: str) -> tuple[int, str]:
        done = relay(*words, *self._urls, **self._place)
        return done.returncode, done.stderr


@pytest.fixture(scope="module")
def operator(house: Up) -> Operator:
    return Operator(house)


def test_the_doctor_says_nothing_of_relay_up_and_ends_with_0(operator: Operator) -> None:
    assert operator.run("doctor", has_url=False) == (0, [])


def test_the_doctor_needs_a_store(tmp_path: Any) -> None:
    done = relay("doctor", data_dir=str(tmp_path))

    assert done.returncode == 1
    assert "RELAY_REDIS_URL is not set" in done.stderr


def test_a_shard_is_told_with_the_keys_of_the_agent() -> None:
    done = relay("shard", "acme/bob")

    told = json.loads(done.stdout)
    assert (told["agent"], told["shard"], told["of"]) == ("acme/bob", 7, 8)
    assert told["keys"]["mailbox"] == "relay:{s07}:box:acme/bob"


def test_a_shard_is_one_of_those_that_the_store_was_made_with(house: Up) -> None:
    done = relay("shard", "acme/bob", data_dir=str(house.folder))

    assert json.loads(done.stdout)["of"] == 4


def test_a_token_that_may_only_look_is_enough_to_look(operator: Operator) -> None:
    token = operator.token("viewer", "--scope", "inspect")

    code, _ = operator.run("agents", "--token", token)
    acted = operator.error("pause", "paul", "--token", token)

    assert code == 0
    assert acted == (1, "Error: the token lacks the scope admin\n")


def test_a_message_is_seen_in_every_way_while_it_waits(operator: Operator) -> None:
    operator.run("send", "paul", "hello", "--id", "seen-1")

    _, agents = operator.run("agents")
    _, mailbox = operator.run("peek", "paul")
    code, (why,) = operator.run("why", "paul")
    traced_code, (traced,) = operator.run("trace", "seen-1")

    assert [(one["agent"], one["waiting"]) for one in sorted(agents, key=lambda row: row["agent"])] == [
        ("demo/cli", 0),
        ("demo/paul", 1),
    ]
    assert [(one["id"], one["why"]) for one in mailbox] == [("seen-1", "nobody connected")]
    assert (code, why["sentence"].partition(";")[0]) == (
        0,
        "1 message waits for demo/paul: nobody connected, and nobody ever was",
    )
    assert (traced_code, traced["state"], traced["from"]) == (0, "queued", "demo/cli")
    assert traced["receipt"] is None
    assert [event["kind"] for event in traced["events"]] == ["accepted"]


def test_a_message_that_nobody_knows_ends_trace_with_1(operator: Operator) -> None:
    code, (traced,) = operator.run("trace", "never-was")

    assert (code, traced["state"]) == (1, "unknown")


def test_a_dead_letter_is_shown_and_brought_back(operator: Operator) -> None:
    operator.run("send", "rita", "hello", "--id", "dies-1")
    token = operator.token("rita")
    operator.fail_all("rita", token)

    _, (letter,) = operator.run("dead", "rita", "--reason", "cannot")
    _, none = operator.run("dead", "rita", "--reason", "another")
    _, (would,) = operator.run("dead", "rita", "revive", "--all", "--dry-run")
    code, (done,) = operator.run("dead", "rita", "revive", "--all", "--yes")
    _, (traced,) = operator.run("trace", "dies-1")

    assert (letter["id"], letter["reason"], none) == ("dies-1", "cannot parse", [])
    assert would["entry"] == done["entry"] == letter["entry"]
    assert (code, done["outcome"]) == (0, "revived")
    assert (traced["state"], [event["kind"] for event in traced["events"]][-1]) == ("queued", "revived")


def test_a_person_is_asked_before_letters_are_dropped(operator: Operator) -> None:
    operator.run("send", "sue", "hello", "--id", "dropped-1")
    operator.fail_all("sue", operator.token("sue"))

    refused = operator.at_terminal("n\n", "dead", "sue", "drop", "--all")
    _, kept = operator.run("dead", "sue")
    agreed = operator.at_terminal("y\n", "dead", "sue", "drop", "--all")
    _, gone = operator.run("dead", "sue")

    assert "drop these 1?" in refused
    assert [one["id"] for one in kept] == ["dropped-1"]
    assert "dropped" in agreed
    assert gone == []


def test_top_prints_a_line_for_each_look(operator: Operator) -> None:
    code, looks = operator.run("top", "--count", "2", "--every", "0.1s")

    assert code == 0
    assert [look["tenant"] for look in looks] == ["demo", "demo"]
    assert all({"messages", "agents", "now", "busiest", "anomalies"} <= look.keys() for look in looks)


def test_top_draws_a_table_at_a_terminal(operator: Operator) -> None:
    screen = operator.at_terminal("", "top", "--count", "1")

    assert "agents online" in screen
    assert "no rates: no worker takes snapshots" in screen or "/s · acked" in screen


def test_a_paused_agent_says_so_until_it_is_resumed(operator: Operator) -> None:
    operator.run("send", "pia", "hello", "--id", "paused-1")

    code, (paused,) = operator.run("pause", "pia", "--reason", "repair")
    _, (why,) = operator.run("why", "pia")
    _, (resumed,) = operator.run("resume", "pia")
    _, (after,) = operator.run("why", "pia")

    assert (code, paused["agent"], paused["paused"]["reason"]) == (0, "demo/pia", "repair")
    assert "paused by demo/admin" in why["sentence"]
    assert "(repair)" in why["sentence"]
    assert resumed["paused"] is None
    assert "nobody connected" in after["sentence"]


def test_a_tenant_is_paused_and_resumed_as_a_whole(operator: Operator) -> None:
    _, (paused,) = operator.run("pause", "--tenant", "demo")
    _, (resumed,) = operator.run("resume", "--tenant", "demo")

    assert (paused["tenant"], paused["paused"]["scope"], resumed["paused"]) == ("demo", "tenant", None)


def test_a_pause_is_of_an_agent_or_of_a_tenant(operator: Operator) -> None:
    assert operator.error("pause")[0] == 2
    assert operator.error("pause", "pia", "--tenant", "demo")[0] == 2


def test_agents_are_searched_by_name(operator: Operator) -> None:
    operator.run("send", "zelda", "hello")

    _, rows = operator.run("agents", "--search", "ELD")

    assert [row["agent"] for row in rows] == ["demo/zelda"]


def test_acts_are_not_done_unasked_in_a_pipe(operator: Operator) -> None:
    code, words = operator.error("dead", "paul", "drop", "--all")

    assert code == 2
    assert "--yes" in words


def test_an_act_says_what_it_is_for(operator: Operator) -> None:
    code, words = operator.error("dead", "paul", "revive", "--yes")

    assert code == 2
    assert "--all" in words


def test_a_relay_that_is_not_there_is_named() -> None:
    done = relay("agents", "--url", "127.0.0.1:1", "--token", "x.e30.x")

    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stderr
