"""`relay send`, `listen`, `reply` and `ask` as a person or a script uses them."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relay.cli.client import LONG_INPUT
from tests.agents import make_token
from tests.integration.cli.test_cli import WITHIN_S, Up, environ, relay, up

pytestmark = pytest.mark.xdist_group("client")

COMMAND = [sys.executable, "-m", "relay.cli"]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("up") / "data", "--instances", "1") as running:
        yield running


class Person:
    """Somebody at a terminal of the machine where the relay runs."""

    def __init__(self, house: Up) -> None:
        self._where = {"data_dir": str(house.folder), "url": house.urls[0]}

    def types(self, *words: str, given: str = "", **settings: str) -> subprocess.CompletedProcess[str]:
        return relay(*words, given=given, **(self._where | settings))

    def starts(
        self, *words: str, stdin: int | None = None, stdout: int = subprocess.PIPE, stderr: int = subprocess.PIPE
    ) -> "subprocess.Popen[str]":
        where = environ(**self._where)
        return subprocess.Popen([*COMMAND, *words], env=where, stdin=stdin, stdout=stdout, stderr=stderr, text=True)

    def pipes(self, line: str) -> subprocess.CompletedProcess[str]:
        shell = f"set -o pipefail; {line}".replace("RELAY", " ".join(COMMAND))
        return subprocess.run(
            ["bash", "-c", shell],
            env=environ(**self._where),
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )


@pytest.fixture
def person(house: Up) -> Person:
    return Person(house)


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_reader_that_takes_one_line_takes_one_message(person: Person) -> None:
    person.types("send", "headed", "--lines", given="1\n2\n3\n4\n5\n")

    first = person.pipes("RELAY listen --as headed | head -1")
    rest = person.types("listen", "--as", "headed", "--count", "4", "--timeout", "20s")

    assert [one["payload"] for one in lines(first.stdout)] == [1]
    assert "Traceback" not in first.stderr
    assert [one["payload"] for one in lines(rest.stdout)] == [2, 3, 4, 5]


def test_listening_ends_after_so_many_messages_or_so_long(person: Person) -> None:
    person.types("send", "counted", "--lines", given="1\n2\n")

    two = person.types("listen", "--as", "counted", "--count", "2")
    none = person.types("listen", "--as", "counted", "--count", "1", "--timeout", "0.5")
    quiet = person.types("listen", "--as", "counted", "--timeout", "0.5")

    assert (two.returncode, [one["payload"] for one in lines(two.stdout)]) == (0, [1, 2])
    assert (none.returncode, none.stdout) == (3, "")
    assert "0 of 1 messages" in none.stderr
    assert quiet.returncode == 0
    assert "listening as demo/counted" in two.stderr


def test_a_look_leaves_everything(person: Person) -> None:
    person.types("send", "looked", "x")

    looks = [person.types("listen", "--as", "looked", "--no-ack", "--count", "1") for _ in range(2)]

    assert [lines(one.stdout)[0]["payload"] for one in looks] == ["x", "x"]


def test_lines_for_people(person: Person) -> None:
    person.types("send", "people", '{"n": 1}', "--type", "note", "--thread", "t")

    shown = person.types("listen", "--as", "people", "--count", "1", "--pretty")

    assert "cli" in shown.stdout
    assert "note #t" in shown.stdout
    assert '{"n": 1}' in shown.stdout


def test_a_request_is_asked_and_answered(person: Person) -> None:
    asking = person.starts("ask", "oracle", "2+2?", "--timeout", "60")
    heard = person.types("listen", "--as", "oracle", "--no-ack", "--count", "1")
    request = lines(heard.stdout)[0]

    answered = person.types("reply", request["id"], "4", "--as", "oracle")
    out, err = asking.communicate(timeout=WITHIN_S)

    assert request["request"] is True
    assert answered.returncode == 0, answered.stderr
    assert lines(out) == [{"from": "demo/oracle", "payload": 4}], err
    assert asking.returncode == 0


def test_the_truth_about_a_request_that_was_acked_without_a_reply(person: Person) -> None:
    asking = person.starts("send", "acker", "2+2?", "--wait", "5")
    person.types("listen", "--as", "acker", "--count", "1")

    _, err = asking.communicate(timeout=WITHIN_S)

    assert asking.returncode == 3
    assert "demo/acker gave no reply: it was acked without a reply" in err


def test_a_request_that_nobody_hears_leaves_no_agent_behind(person: Person) -> None:
    asked = person.types("ask", "deaf", "anybody?", "--timeout", "0.5")

    assert asked.returncode == 3
    assert "no reply" in asked.stderr


def test_a_reply_to_what_is_not_there(person: Person) -> None:
    person.types("send", "plain", "x", "--id", "no-request")

    absent = person.types("reply", "nothing", "4", "--as", "plain", "--timeout", "0.5")
    no_request = person.types("reply", "no-request", "4", "--as", "plain")

    assert (absent.returncode, no_request.returncode) == (3, 1)
    assert "no message nothing waits for demo/plain" in absent.stderr
    assert "is not a request" in no_request.stderr


def test_a_second_listener_is_named_in_words(person: Person) -> None:
    first = person.starts("listen", "--as", "double")
    assert first.stderr is not None
    assert "listening as demo/double" in first.stderr.readline()

    person.types("listen", "--as", "double", "--timeout", "0.5")

    _, err = first.communicate(timeout=WITHIN_S)
    assert first.returncode == 1
    assert "a newer session" in err


def test_ctrl_c_ends_a_listener(person: Person) -> None:
    listening = person.starts("listen", "--as", "ended")
    assert listening.stderr is not None
    listening.stderr.readline()

    listening.send_signal(signal.SIGINT)
    _, err = listening.communicate(timeout=WITHIN_S)

    assert listening.returncode == 130
    assert "Traceback" not in err


def test_ctrl_c_ends_a_request(person: Person) -> None:
    with person.starts("ask", "slow", "anybody?", "--timeout", "60s") as asking:
        person.types("listen", "--as", "slow", "--no-ack", "--count", "1")  # by then it is under way
        asking.send_signal(signal.SIGINT)
        _, said = asking.communicate(timeout=WITHIN_S)

    assert (asking.returncode, said) == (130, "")


def test_people_are_told_who_sent_what_to_whom(person: Person) -> None:
    terminal, output = pty.openpty()
    with person.starts("send", "carla", "hello", "--as", "chris", stdout=output) as sending:
        assert sending.wait(WITHIN_S) == 0

    assert b"sent to demo/carla as demo/chris: " in os.read(terminal, 1_000)
    for end in (terminal, output):
        os.close(end)


def test_progress_is_for_people_and_the_output_for_programs(person: Person) -> None:
    terminal, errors = pty.openpty()
    given = "1\n" * LONG_INPUT
    with person.starts("send", "many", "--lines", stdin=subprocess.PIPE, stderr=errors) as sending:
        out, _ = sending.communicate(given, timeout=WITHIN_S)

    assert lines(out) == [{"sent": LONG_INPUT, "to": "demo/many"}]
    assert b"sending" in os.read(terminal, 1_000)
    for end in (terminal, errors):
        os.close(end)


def test_a_token_from_the_environment_says_who_one_is(house: Up, tmp_path: Path) -> None:
    secret = (house.folder / "token-secret").read_text().strip()
    token = make_token(secret, "demo/envy")
    elsewhere = {"url": house.urls[0], "token": token, "data_dir": str(tmp_path / "none")}

    sent = relay("send", "envy", "to myself", **elsewhere)
    heard = relay("listen", "--count", "1", **elsewhere)
    contradicted = relay("listen", "--as", "other", **elsewhere)
    lacking = relay("listen", "--token", make_token(secret, "demo/envy", "send"), **elsewhere)
    expired = relay("listen", "--token", make_token(secret, "demo/envy", ttl_s=-10), **elsewhere)

    assert sent.returncode == 0, sent.stderr
    assert lines(heard.stdout)[0]["from"] == "demo/envy"
    assert contradicted.returncode == 2
    assert "contradict" in contradicted.stderr
    assert "lacks the scope receive" in lacking.stderr
    assert expired.returncode == 1
    assert "expired" in expired.stderr


def test_a_client_never_makes_a_secret(house: Up, tmp_path: Path) -> None:
    tried = relay("send", "bob", "x", url=house.urls[0], data_dir=str(tmp_path / "data"))

    assert tried.returncode == 1
    assert "no token" in tried.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["send", "bob", "hi", "--file", __file__],
        ["send", "bob", "hi", "--lines"],
        ["send", "bob", "--lines", "--wait", "5"],
        ["send", "bob", "hi", "--wait", "5", "--id", "m-1"],
        ["ask", "not an address", "hi"],
        ["listen", "--as", "not an address"],
    ],
)
def test_contradictions_are_said(words: list[str]) -> None:
    tried = relay(*words, token_secret="a secret for tests that is long enough")

    assert tried.returncode == 2


def test_a_listener_waits_for_a_relay_that_is_away(house: Up) -> None:
    secret = (house.folder / "token-secret").read_text().strip()
    where = environ(token=make_token(secret, "demo/patient"), url="http://127.0.0.1:9")
    listening = subprocess.Popen([*COMMAND, "listen"], env=where, stderr=subprocess.PIPE, text=True)
    assert listening.stderr is not None

    said = [listening.stderr.readline() for _ in range(2)]
    os.kill(listening.pid, signal.SIGINT)
    listening.communicate(timeout=WITHIN_S)

    assert all("no relay answers at http://127.0.0.1:9" in one and "trying again" in one for one in said)
