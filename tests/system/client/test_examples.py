"""The programs in examples/, run against the real relay, and checked as a user's type checker would."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from examples import chat, sealed, story, workers
from examples.test_greeter import fake_relay, test_it_greets, test_nobody_hears_what_is_older_than_a_week
from tests.system.conftest import Room

__all__ = ["fake_relay", "test_it_greets", "test_nobody_hears_what_is_older_than_a_week"]
ROOT = Path(__file__).parents[3]


def tokens(room: Room, *names: str) -> list[str]:
    return [room.token(name) for name in names]


async def test_the_first_agents(room: Room) -> None:
    words = [sys.executable, ROOT / "examples/first.py", room.a.url, *tokens(room, "alice", "bob")]
    running = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE)

    assert await running.communicate() == (b"4\n", None)


def test_the_first_example_is_ten_lines_and_the_readmes() -> None:
    code = (ROOT / "examples/first.py").read_text().partition("\n\n")[2]

    assert len([line for line in code.splitlines() if line.strip()]) == 10
    assert f"```python\n{code}```" in (ROOT / "README.md").read_text()


async def test_a_chat(room: Room, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await chat.main(room.a.url, *tokens(room, "alice", "bob"), tmp_path)

    said = capsys.readouterr().out
    assert [line.partition(": ")[2] for line in said.splitlines()] == [
        *("Hi Alice", "Fine", "Bye"),
        *("Hello Bob", "How are you?", "Bye"),
    ]


async def test_workers(room: Room, capsys: pytest.CaptureFixture[str]) -> None:
    clients, pools = tokens(room, "client", "pool")

    await workers.main(room.a.url, clients, "pool", pools)

    said = capsys.readouterr().out
    assert said.count("booked 1 for") == said.count("booked 13 for") == 2
    assert said.count("an amount is never negative") == 2


async def test_a_story(room: Room, capsys: pytest.CaptureFixture[str]) -> None:
    await story.main(room.a.url, *tokens(room, "alice", "bob"))

    assert capsys.readouterr().out.strip() == "Once upon a time there was a fox"


async def test_a_sealed_conversation(room: Room, capsys: pytest.CaptureFixture[str]) -> None:
    await sealed.main(room.a.url, *tokens(room, "alice", "bob"))

    said = capsys.readouterr().out
    assert "bob reads: when do we meet? | signed: True | sealed: True" in said
    assert "alice reads: at noon" in said


def type_checked(*programs: Path) -> str:
    """What a type checker says with its own, strict settings, as at a user's."""
    words = [sys.executable, "-m", "mypy", "--strict", "--config-file=", *programs]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False).stdout


def test_the_examples_have_no_fault_of_types() -> None:
    assert "no issues found" in type_checked(*(ROOT / "examples").glob("*.py"))


def test_a_type_checker_sees_the_types_of_the_client(tmp_path: Path) -> None:
    program = tmp_path / "wrong.py"
    program.write_text(
        "from relay.client import Agent, Message\n"
        "async def main(me: Agent) -> None:\n"
        "    @me.on()\n"
        "    async def handle(message: Message[int]) -> None:\n"
        "        reveal_type(message.payload)\n"
        "        message.payload.upper()\n"
        "    sent = await me.send('bob', 1)\n"
        "    reveal_type(await sent.ended())\n"
    )

    said = type_checked(program)

    assert 'Revealed type is "builtins.int"' in said or 'Revealed type is "int"' in said
    assert '"int" has no attribute "upper"' in said
    assert "Delivered" in said
