"""The command line as a person uses it: real processes, their words and exit codes."""

import base64
import json
import os
import signal
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import jwt
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from click.testing import CliRunner

from relay.auth import Tokens
from relay.cli import main
from relay.cli.main import announce
from relay.cli.up import supervisor
from relay.cli.up.lifeline import Child
from relay.errors import ConfigurationError
from relay.settings import Settings
from relay.telemetry import logs
from tests.servers import free_port
from tests.up import WITHIN_S, Up, environ, up
from workers.main import workers

pytestmark = pytest.mark.xdist_group("cli")

SECRET = {"token_secret": "a secret for tests that is long enough"}


def relay(*words: str, given: str = "", **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "relay.cli", *words],
        capture_output=True,
        text=True,
        input=given,
        env=environ(**settings),
        timeout=WITHIN_S,
        check=False,
    )


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("up") / "data") as running:
        yield running


def descendants_of(folder: Path) -> list[str]:
    """The command lines of living processes that name a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if os.fsencode(folder) in words and state != "Z":
                found.append(entry.name)
    return found


# -- everything at once


def test_listen_prints_any_payload_as_one_line(house: Up) -> None:
    payloads = ["9" * 5_000, "1e999", "[" * 900 + "]" * 900, '{\n "a":\r\n 1}', '"\\ud83d\\ude00"']
    data = {"data_dir": str(house.folder)}
    sent = [relay("send", "odd", "--url", house.urls[0], given=one, **data) for one in payloads]
    listening = Child(
        [sys.executable, "-m", "relay.cli", "listen", "--as", "odd", "--url", house.urls[1]],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environ(**data),
    )
    assert listening.stdout is not None
    lines = [listening.stdout.readline().decode() for _ in payloads]
    listening.send_signal(signal.SIGINT)
    listening.wait(WITHIN_S)
    listening.stdout.close()

    assert [one.returncode for one in sent] == [0] * len(payloads)
    for line, payload in zip(lines, payloads, strict=True):
        assert f'"payload":{payload}'.replace("\n", " ").replace("\r", " ") in line


def test_what_is_sent_through_one_instance_is_heard_through_the_other(house: Up) -> None:
    data = {"data_dir": str(house.folder)}
    sent = relay("send", "bob", '{"n": 1}', "--url", house.urls[0], "--type", "note", "--id", "m-1", **data)
    again = relay("send", "bob", "other", "--url", house.urls[1], "--id", "m-1", **data)
    listening = Child(
        [sys.executable, "-m", "relay.cli", "listen", "--as", "bob", "--url", house.urls[1]],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environ(**data),
    )
    assert listening.stdout is not None
    heard = json.loads(listening.stdout.readline())
    live = relay("send", "demo/bob", "plain text", "--url", house.urls[0], **data)
    heard_live = json.loads(listening.stdout.readline())
    listening.send_signal(signal.SIGINT)
    code = listening.wait(WITHIN_S)
    listening.stdout.close()

    assert sent.returncode == live.returncode == 0, sent.stderr
    assert json.loads(sent.stdout) == {"id": "m-1", "durability": "fsync", "duplicate": False}
    assert json.loads(again.stdout)["duplicate"] is True
    assert (heard["id"], heard["payload"], heard["type"], heard["from"]) == ("m-1", {"n": 1}, "note", "demo/cli")
    assert heard_live["payload"] == "plain text"
    assert code == 130


def test_a_payload_comes_from_standard_input_or_a_file(house: Up, tmp_path: Path) -> None:
    data = {"data_dir": str(house.folder)}
    (tmp_path / "payload.json").write_text("[1, 2]")

    from_input = relay("send", "carol", "--url", house.urls[0], given='{"from": "stdin"}', **data)
    from_file = relay("send", "carol", "--file", str(tmp_path / "payload.json"), "--url", house.urls[0], **data)

    assert from_input.returncode == from_file.returncode == 0, from_input.stderr + from_file.stderr


def test_a_second_start_on_the_same_folder_says_who_holds_it(house: Up) -> None:
    second = relay("up", "--data", str(house.folder), "--port", str(free_port()))

    assert second.returncode == 1
    assert str(house.process.pid) in second.stderr
    assert "relay up" in second.stderr
    assert "Traceback" not in second.stderr


def test_both_instances_are_ready_and_count(house: Up) -> None:
    for url in house.urls:
        with urllib.request.urlopen(f"{url}/readyz") as answer:
            assert json.load(answer)["status"] == "ready"
        with urllib.request.urlopen(f"{url}/metrics") as answer:
            assert b"relay_accepted_total" in answer.read()


def test_an_instance_that_dies_is_started_again(house: Up) -> None:
    words = {pid: _words(pid).split("\0") for pid in _children(house.process.pid)}
    instance = next(pid for pid, said in words.items() if "serve" in said and str(house.port) in said)

    os.kill(int(instance), signal.SIGKILL)

    deadline = time.monotonic() + WITHIN_S
    while "starting it again" not in house.told() or not _is_ready(house.urls[0]):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _words(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/readyz") as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError):
        return False


def test_messages_wait_through_ctrl_c_and_a_new_start(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with up(folder) as first:
        sent = relay("send", "bob", "keep me", "--url", first.urls[0], data_dir=str(folder))
        assert sent.returncode == 0, sent.stderr
        assert first.stop(signal.SIGINT) == 0
        assert "kept" in first.told()
        assert "Traceback" not in first.told()
    assert descendants_of(folder) == []

    with up(folder, "--instances", "1") as second:
        listening = Child(
            [sys.executable, "-m", "relay.cli", "listen", "--as", "bob", "--no-ack", "--url", second.urls[0]],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environ(data_dir=str(folder)),
        )
        assert listening.stdout is not None
        assert json.loads(listening.stdout.readline())["payload"] == "keep me"
        listening.kill()
        listening.wait()
        listening.stdout.close()

        second.process.kill()
        second.process.wait()
        deadline = time.monotonic() + 30
        while descendants_of(folder):
            assert time.monotonic() < deadline, descendants_of(folder)
            time.sleep(0.05)


# -- tokens and keys


def test_a_token_names_its_agent_scope_and_end() -> None:
    secret = "a secret for tests that is long enough"

    made = relay("token", "--agent", "acme/alice", "--scope", "send inspect", "--ttl", "2h", token_secret=secret)
    claims = jwt.decode(made.stdout.strip(), secret, algorithms=["HS256"])

    assert (claims["sub"], claims["tenant"], claims["scope"]) == ("alice", "acme", "send inspect")
    assert claims["exp"] - time.time() == pytest.approx(7_200, abs=60)


@pytest.mark.parametrize(("max_age_s", "told"), [(86_400, "valid for 1 d"), (600, "valid for 10 min")])
def test_the_token_that_is_shown_at_the_start_is_taken(
    capsys: pytest.CaptureFixture[str], max_age_s: int, told: str
) -> None:
    chosen = Settings(**SECRET, token_max_age_s=max_age_s)

    announce(chosen, ["http://127.0.0.1:8080"])

    shown = capsys.readouterr().out
    token = shown.partition("A token for demo/admin, ")[2].split("\n")[0]
    assert token.startswith(told)
    assert Tokens(chosen).verify(token.split(": ")[1]).is_operator


def test_a_bare_agent_is_of_the_tenant_demo_and_the_secret_is_kept(tmp_path: Path) -> None:
    first, second = (relay("token", "--agent", "alice", data_dir=str(tmp_path)) for _ in range(2))

    secret = (tmp_path / "token-secret").read_text().strip()
    tokens = [made.stdout.strip() for made in (first, second)]
    assert {jwt.decode(token, secret, algorithms=["HS256"])["tenant"] for token in tokens} == {"demo"}
    assert f"{tmp_path / 'token-secret'} is new" in first.stderr
    assert second.stderr == ""
    assert stat.S_IMODE((tmp_path / "token-secret").stat().st_mode) == 0o600


def test_keygen_prints_a_key_or_keeps_the_private_half_in_a_new_file(tmp_path: Path) -> None:
    printed = relay("keygen")
    public, private = (line.split()[1] for line in printed.stdout.splitlines())
    assert len(base64.b64decode(public)) == len(base64.b64decode(private)) == 32

    out = tmp_path / "key"
    kept = relay("keygen", "--out", str(out))
    again = relay("keygen", "--out", str(out))

    assert kept.returncode == 0
    assert "private " not in kept.stdout
    assert len(base64.b64decode(out.read_text())) == 32
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert again.returncode == 1
    assert again.stdout == ""
    assert str(out) in again.stderr


# -- what is wrong is said in one line


@pytest.mark.parametrize(
    ("words", "settings", "code", "told"),
    [
        (["token", "--agent", "alice", "--scope", "send fly"], {}, 2, "fly"),
        (["token", "--agent", "a b"], {}, 2, "not an address"),
        (["shard", "a b"], {}, 2, "not an address"),
        (["peek", "a b"], SECRET, 2, "not an address"),
        (["token", "--agent", "alice", "--ttl", "soon"], {}, 2, "soon"),
        (["token", "--agent", "alice", "--ttl", "2d"], {}, 2, "86400"),
        (["token"], {}, 2, "--agent"),
        (["token", "--agent", "alice", "--scope", ""], {}, 2, "admin inspect metrics operator receive send"),
        (["send", "a b", "x"], {}, 2, "not an address"),
        (["send", "other/bob", "x", "--as", "acme/alice", "--url", "http://127.0.0.1:9"], SECRET, 1, "127.0.0.1:9"),
        (["send", "bob", "x", "--url", "127.0.0.1:9"], SECRET, 1, "no relay answers at http://127.0.0.1:9"),
        (["send", "bob", "--file", "/nowhere"], {}, 2, "/nowhere"),
        (["serve"], {"nonsense": "1"}, 1, "RELAY_NONSENSE"),
        (["serve"], {"recheck_s": "never", "shards": "0"}, 1, "RELAY_RECHECK_S"),
        (["serve"], {"shards": "0"}, 1, "RELAY_SHARDS: must be from 1 to 4096"),
        (["serve"], {"durability": "strong"}, 1, "memory, fsync, replica"),
        (["serve"], {"redis_url": "http://x"}, 1, "RELAY_REDIS_URL"),
        (["serve", "--port", "70000"], {}, 2, "70000"),
        (["workers", "--only", "sweeper,painter"], {}, 1, "painter"),
        (["bench", "--peers", "--chart", "/nowhere/x.svg"], {}, 2, "/nowhere is no folder to write into"),
        (["fly"], {}, 2, "fly"),
        (["up", "--instances", "0"], {}, 2, "0"),
        (["up", "--host", "999.1.1.1"], {}, 1, "try another --host"),
        (["up", "--host", "192.0.2.1"], {}, 1, "try another --host"),
    ],
)
def test_wrong_input_is_named_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    words: list[str],
    settings: dict[str, str],
    code: int,
    told: str,
) -> None:
    monkeypatch.setattr(logs, "configure", lambda _: None)  # the test's own logs stay as they are
    given = {"data_dir": str(tmp_path / "data")} | settings

    answer = CliRunner().invoke(main.main, words, env={f"RELAY_{name.upper()}": value for name, value in given.items()})

    assert answer.exit_code == code, answer.output
    assert told in answer.output
    assert "Traceback" not in answer.output


@pytest.mark.parametrize("words", [["--help"], ["up", "-h"], ["send", "--help"], ["--version"]])
def test_help_and_version_work_everywhere(words: list[str]) -> None:
    assert CliRunner().invoke(main.main, words).exit_code == 0


def test_the_help_of_the_workers_names_each() -> None:
    shown = CliRunner().invoke(main.main, ["workers", "--help"]).output

    assert [name for name in workers(Settings()) if name not in shown] == []


def test_another_number_of_shards_than_the_data_have_is_said(house: Up) -> None:
    other = relay("serve", "--port", "0", data_dir=str(house.folder))

    assert other.returncode == 1
    assert "RELAY_SHARDS: the store was made with 4 shards, not 8" in other.stderr
    assert "Traceback" not in other.stderr


def test_a_payload_that_is_no_text_is_said(tmp_path: Path) -> None:
    file = tmp_path / "payload"
    file.write_bytes(b"\xff\xfe")

    answer = relay("send", "bob", "--file", str(file), data_dir=str(tmp_path / "data"))

    assert answer.returncode == 2
    assert "UTF-8" in answer.stderr


def test_a_secret_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "token-secret").mkdir()  # refused even to root, like another user's file

    answer = CliRunner().invoke(main.main, ["send", "bob", "x"], env={"RELAY_DATA_DIR": str(tmp_path)})

    assert answer.exit_code == 1, answer.output
    assert f"{tmp_path / 'token-secret'}: Is a directory; give --token" in answer.output


def test_a_store_that_is_away_is_one_line_with_what_to_check(tmp_path: Path) -> None:
    answer = relay("doctor", data_dir=str(tmp_path), redis_url=f"redis://127.0.0.1:{free_port()}")

    assert answer.stderr == "Error: the store does not answer: check RELAY_REDIS_URL, and that the server runs\n"


def test_everything_on_ports_in_use_is_not_started(house: Up, tmp_path: Path) -> None:
    second = relay("up", "--port", str(house.port), "--data", str(tmp_path / "data"))

    assert second.returncode == 1
    assert f":{house.port}: Address already in use; try another --port" in second.stderr
    assert "Traceback" not in second.stderr


def test_a_port_in_use_is_said(house: Up) -> None:
    second = relay("serve", "--port", str(house.port), data_dir=str(house.folder), shards="4")

    assert second.returncode == 1
    assert f":{house.port}: Address already in use; try another --port" in second.stderr
    assert "Traceback" not in second.stderr


async def test_a_relay_that_does_not_become_ready_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    async def readyz(_: web.Request) -> web.Response:
        return web.json_response({"status": "not_ready", "reason": "the store does not answer"}, status=503)

    monkeypatch.setattr(supervisor, "READY_WITHIN_S", 0.0)
    app = web.Application()
    app.router.add_get("/readyz", readyz)

    async with TestServer(app) as server:
        with pytest.raises(ConfigurationError, match="is not ready after 0 s: the store does not answer"):
            await supervisor._when_ready([str(server.make_url("")).rstrip("/")], lambda: None)
