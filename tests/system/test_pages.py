"""README.md and docs/a2a.md against `relay up`: their commands and programs, run as they stand."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.up import WITHIN_S, Up, environ, up

pytestmark = [
    pytest.mark.xdist_group("pages"),
    pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl"),
]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("pages") / "data") as running:
        yield running


def blocks(page: str, kind: str, house: Up) -> list[str]:
    """The blocks of one kind, for the ports of this `relay up` and the Python that runs the tests."""
    programs = {".venv/bin/relay": f"{sys.executable} -m relay.cli", ".venv/bin/python": sys.executable}
    text = re.sub(r"\.venv/bin/(relay|python)\b", lambda named: programs[named[0]], (ROOT / page).read_text())
    text = text.replace("http://127.0.0.1:8080", house.urls[0]).replace("http://127.0.0.1:8081", house.urls[1])
    return re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)


def start(script: str, folder: Path, house: Up) -> "subprocess.Popen[str]":
    """A shell that stops at the first command that fails, and ends what it has started."""
    given = environ(data_dir=str(house.folder)) | {"RELAY_URL": house.urls[0], "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        ["bash", "-ec", f"trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n{script}"],
        cwd=folder,
        env=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_what_the_readme_sends_is_heard(house: Up, tmp_path: Path) -> None:
    run, listen, send, with_token, *_ = blocks("README.md", "sh", house)
    assert run == "./run\n"

    sending = start(send + with_token, tmp_path, house)
    told, wrong = sending.communicate(timeout=WITHIN_S)
    assert (sending.returncode, '"state":"queued"' in told) == (0, True), wrong
    hearing = start(f"exec {listen.strip()} --count 3", tmp_path, house)
    heard, _ = hearing.communicate(timeout=WITHIN_S)

    assert [re.findall(r'"payload":("hello"|{"task")', line) for line in heard.splitlines()] == [
        ['"hello"'],
        ['{"task"'],
        ['"hello"'],
    ]


def test_the_first_agents_of_the_readme_answer_each_other(house: Up) -> None:
    *_, with_token, first_agents = blocks("README.md", "sh", house)[:5]

    asking = start(with_token + first_agents, ROOT, house)
    told, wrong = asking.communicate(timeout=WITHIN_S)

    assert told.endswith("4\n"), wrong


def test_the_page_of_a2a_runs_as_it_stands(house: Up, tmp_path: Path) -> None:
    for program in blocks("docs/a2a.md", "python", house):
        name = re.match(r"# (\w+\.py)\n", program)
        assert name is not None
        (tmp_path / name[1]).write_text(program)

    running = start("".join(blocks("docs/a2a.md", "sh", house)), tmp_path, house)
    told, wrong = running.communicate(timeout=WITHIN_S)

    assert running.returncode == 0, wrong
    assert told.count("TASK_STATE_COMPLETED") >= 3, told  # of the send, the look and the stream
    assert told.count("you said hello") >= 3
    assert '"error"' not in told
